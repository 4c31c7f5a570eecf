// Builds the page of notebooks: one ES module with its hash in its name, which the Python package carries.
import { createRequire } from 'node:module';
import { fileURLToPath } from 'node:url';

const require = createRequire(import.meta.url);
const { rspack } = require('@rspack/core');
const { optimization, target } = require('./webpack.config.js');

const here = path => fileURLToPath(new URL(path, import.meta.url));

rspack(
  {
    mode: 'production',
    devtool: false,
    entry: here('lib/page/notebook.js'),
    target,
    optimization,
    output: {
      path: here('../workbench/panels'),
      filename: 'page.[contenthash:8].js',
      library: { type: 'module' },
      module: true
    }
  },
  (error, stats) => {
    const problem = error ?? (stats.hasErrors() && stats.toString('errors-warnings'));
    if (problem) {
      console.error(problem);
      process.exit(1);
    }
    console.log(stats.toString({ all: false, assets: true }));
  }
);
