#!/bin/sh
# Build plotly.min.js beside this script: Plotly with the trace types that pages draw, and nothing else.
# The version is that of the Python package (tests/dashboard/test_frame.py); the date fixes the versions below it, so
# the same file comes out again. Needs node and npm.
set -eu
version=4.1.1
known_before=2026-11-28
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
npm install --silent --no-save --ignore-scripts --no-audit --no-fund --before="$known_before" \
    "plotly.js@$version" esbuild@0.28.2
cat > pages.js <<'END'
const Plotly = require("plotly.js/lib/core");  // has scatter
Plotly.register([require("plotly.js/lib/bar"), require("plotly.js/lib/heatmap")]);
module.exports = Plotly;
END
npx esbuild pages.js --bundle --minify --format=iife --global-name=Plotly --target=es2016 --log-level=error \
    --define:global=window --define:define.amd=false --alias:regl=@plotly/regl --alias:stream=stream-browserify \
    --legal-comments=none --outfile=plotly.min.js \
    --banner:js="/* plotly.js v$version with scatter, bar and heatmap, made by plotly.sh. MIT license: plotly-LICENSE.txt */"
cp plotly.min.js "$here/plotly.min.js"
cp node_modules/plotly.js/LICENSE "$here/plotly-LICENSE.txt"
sha256sum "$here/plotly.min.js"
