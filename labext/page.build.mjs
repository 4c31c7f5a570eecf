// Builds what the Python package carries: the page of notebooks and of `workbench app`, one ES module with its hash in its name, and each function
// of src/figures as a script that calls it `workbench`, for the documents of figures.
import { readdirSync } from 'node:fs';
import { createRequire } from 'node:module';
import { fileURLToPath } from 'node:url';

const require = createRequire(import.meta.url);
const { rspack } = require('@rspack/core');
const { optimization, target } = require('./webpack.config.js');

const here = path => fileURLToPath(new URL(path, import.meta.url));
const common = { mode: 'production', devtool: false, target, optimization };

const page = {
  ...common,
  entry: here('lib/page/notebook.js'),
  output: {
    path: here('../workbench/views'),
    filename: 'page.[contenthash:8].js',
    library: { type: 'module' },
    module: true
  }
};

// The others are parts of these.
const functions = readdirSync(here('lib/figures')).filter(name => name.endsWith('.js') && name !== 'models.js');
const scripts = {
  ...common,
  entry: Object.fromEntries(functions.map(name => [name.replace('.js', ''), here(`lib/figures/${name}`)])),
  output: {
    path: here('../workbench/figures/scripts'),
    filename: '[name].js',
    library: { type: 'var', name: 'workbench', export: 'default' },
    clean: true
  }
};

rspack([page, scripts], (error, stats) => {
  const problem = error ?? (stats.hasErrors() && stats.toString('errors-warnings'));
  if (problem) {
    console.error(problem);
    process.exit(1);
  }
  console.log(stats.toString({ all: false, assets: true }));
});
