// Merged into the builder's own configuration. All JavaScript of the extension is to stay below 80 kB, with the page.
const { rspack } = require('@rspack/core');

module.exports = {
  module: {
    rules: [
      {
        // A style sheet is a file that the browser reads, and not a text inside JavaScript.
        test: /\.raw\.css$/,
        type: 'asset/resource',
        generator: { filename: '[name].[contenthash].css' },
        use: [{ loader: 'builtin:lightningcss-loader', options: { minify: true, targets: 'chrome >= 111' } }]
      }
    ]
  },
  target: ['web', 'es2022'],
  // Each file of the extension says this name twice: the builder's own is longer.
  output: { chunkLoadingGlobal: 'dask_workbench' },
  optimization: {
    // By the order of imports: those made from paths would make another file in another folder.
    moduleIds: 'natural',
    minimizer: [
      new rspack.SwcJsMinimizerRspackPlugin({
        // Names that begin with _ are private to their class, so they may be shortened as local ones are.
        minimizerOptions: {
          mangle: { props: { regex: '^_[a-z]' } },
          compress: { passes: 3, ecma: 2022, unsafe_arrows: true }
        }
      })
    ]
  }
};
