"""The look of a page: one column on a phone, light or dark as the reader's system is."""

CSS = """
:root {
  color-scheme: light dark;
  --page: #ffffff; --card: #f5f7fa; --ink: #1d2430; --faint: #566173; --line: #d5dbe4;
  --link: #005a8f; --missing: #8a5a00; --missing-page: #fff6e0; --warning: #a33f00; --warning-page: #fdeee6;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #14181f; --card: #1c222c; --ink: #e4e8ef; --faint: #a3aebf; --line: #343d4b;
    --link: #6cc0f5; --missing: #f2c14e; --missing-page: #2c2614; --warning: #ff9d6b; --warning-page: #33201a;
  }
}
* { box-sizing: border-box; }
html { scroll-behavior: smooth; scroll-padding-top: 1rem; -webkit-text-size-adjust: 100%; }
@media (prefers-reduced-motion: reduce) { html { scroll-behavior: auto; } }
body {
  margin: 0; background: var(--page); color: var(--ink);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", "Noto Sans", sans-serif;
}
header, footer, .layout { max-width: 84rem; margin: 0 auto; padding: 0 1.5rem; }
header { padding-top: 1.8rem; }
h1 { margin: 0; font-size: 1.7rem; line-height: 1.25; overflow-wrap: anywhere; }
header p { margin: .3rem 0 0; color: var(--faint); overflow-wrap: anywhere; }
.layout { display: grid; grid-template-columns: 14rem minmax(0, 1fr); gap: 2.5rem; align-items: start; }
nav { position: sticky; top: 0; max-height: 100vh; overflow-y: auto; padding: 1.6rem 0; font-size: .92rem; }
nav h2 { margin: 0 0 .4rem; font-size: .8rem; letter-spacing: .06em; text-transform: uppercase;
  color: var(--faint); border: 0; padding: 0; }
nav ol { list-style: none; margin: 0; padding: 0; }
nav a { display: block; padding: .22rem 0; text-decoration: none; overflow-wrap: anywhere; }
nav a:hover { text-decoration: underline; }
a { color: var(--link); }
main { padding-bottom: 2rem; }
section > h2 { font-size: 1.3rem; margin: 0 0 .5rem; padding-top: 1.6rem; overflow-wrap: anywhere; }
section + section > h2 { border-top: 1px solid var(--line); margin-top: 2rem; }
h3 { font-size: 1.08rem; margin: 1.4rem 0 .5rem; overflow-wrap: anywhere; }
p { max-width: 46rem; margin: 0 0 .9rem; overflow-wrap: anywhere; }
code { font: .92em ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; overflow-wrap: anywhere; }
.intro { color: var(--faint); }
.row { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 22rem), 1fr)); gap: 1.2rem;
  margin: 0 0 1.2rem; align-items: start; }
figure { margin: 0; padding: .9rem; background: var(--card); border: 1px solid var(--line); border-radius: 8px;
  min-width: 0; }
figure.wide { grid-column: 1 / -1; }
figure img { display: block; width: 100%; max-width: calc(var(--natural) * 1.35); height: auto; margin: 0 auto; }
figure.wide img { min-width: min(var(--natural), 46rem); max-width: var(--natural); }
figure img[src^="data:image/png"] { background: #fff; border-radius: 4px; }
video { display: block; width: 100%; height: auto; max-width: 46rem; margin: 0 auto; image-rendering: pixelated;
  background: #000; border-radius: 4px; }
figcaption { margin-top: .6rem; font-size: .88rem; line-height: 1.45; color: var(--faint); overflow-wrap: anywhere; }
.scroll { overflow-x: auto; max-width: 100%; margin: 0 0 1.2rem; }
figure .scroll { margin: 0; }
.scroll:focus-visible, a:focus-visible, summary:focus-visible { outline: 3px solid var(--link); outline-offset: 2px; }
table { border-collapse: collapse; font-size: .92rem; font-variant-numeric: tabular-nums; }
.caption { color: var(--faint); font-size: .88rem; margin: 0 0 .3rem; }
th, td { text-align: left; padding: .32rem .8rem .32rem 0; border-bottom: 1px solid var(--line);
  vertical-align: top; overflow-wrap: break-word; }
thead th { border-bottom-width: 2px; white-space: nowrap; }
tbody th { font-weight: 600; }
.number { text-align: right; }
.note { border-left: 4px solid; padding: .55rem .8rem; border-radius: 0 6px 6px 0; }
.missing { border-color: var(--missing); background: var(--missing-page); }
.warning { border-color: var(--warning); background: var(--warning-page); }
.missing strong { color: var(--missing); }
.warning strong { color: var(--warning); }
details { border: 1px solid var(--line); border-radius: 8px; padding: .6rem .9rem; margin: 0 0 1.2rem; }
details[open] > summary { margin-bottom: .8rem; }
summary { cursor: pointer; font-weight: 600; overflow-wrap: anywhere; }
footer { padding-top: 1rem; padding-bottom: 2rem; color: var(--faint); font-size: .88rem; }
.skip { position: absolute; left: -100rem; }
.skip:focus { left: 1rem; top: .5rem; background: var(--page); padding: .3rem .6rem; z-index: 1; }
@media (max-width: 62rem) {
  .layout { display: block; }
  nav { position: static; max-height: none; padding: 1rem 0 0; }
  nav ol { display: flex; flex-wrap: wrap; gap: .1rem 1.1rem; }
}
@media (max-width: 40rem) {
  header, footer, .layout { padding-left: 1rem; padding-right: 1rem; }
  h1 { font-size: 1.35rem; }
  figure { padding: .5rem; }
  .row { gap: .8rem; }
  details { padding: .6rem 0; border-width: 1px 0; border-radius: 0; }
}
@media print { nav { display: none; } .layout { display: block; } figure { break-inside: avoid; } }
"""
