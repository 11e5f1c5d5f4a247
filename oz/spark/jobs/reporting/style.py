"""How the page looks, in light and in dark."""

STYLE = """
:root{color-scheme:light dark;--page:#f4f5f7;--card:#fff;--text:#1b1f24;--soft:#59626d;--line:#dfe3e8;
--bar:#2b6cb0;--loss:#c2410c;--empty:#eef0f3}
@media (prefers-color-scheme:dark){:root{--page:#101317;--card:#191e24;--text:#e7eaee;--soft:#9aa5b1;
--line:#2c343d;--bar:#63a4e8;--loss:#fb8a5b;--empty:#222931}}
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--text);font:16px/1.45 system-ui,sans-serif;
-webkit-text-size-adjust:100%}
main{max-width:1060px;margin:0 auto;padding:12px;display:grid;gap:12px;
grid-template-columns:repeat(auto-fit,minmax(min(100%,340px),1fr));align-items:start}
header,footer,.wide{grid-column:1/-1}
h1{font-size:1.35rem;margin:8px 0 2px;overflow-wrap:anywhere}
h2{font-size:1.05rem;margin:0 0 2px}
h3{font-size:.9rem;margin:14px 0 4px}
p{margin:2px 0 8px}
.soft,footer,figcaption{color:var(--soft);font-size:.85rem}
section{background:var(--card);border:1px solid var(--line);border-radius:10px;padding:12px;min-width:0}
dl{display:grid;grid-template-columns:repeat(auto-fit,minmax(140px,1fr));gap:10px;margin:0}
dt{color:var(--soft);font-size:.8rem}
dd{margin:0;font-size:1.25rem;font-weight:600;font-variant-numeric:tabular-nums}
dd small{display:block;font-size:.8rem;font-weight:400;color:var(--soft)}
figure{margin:0 0 10px}
svg{display:block;width:100%;height:auto;font:11px system-ui,sans-serif}
svg text{fill:var(--soft)}
.bar{fill:var(--bar)}
.loss{fill:var(--loss)}
.empty{fill:var(--empty)}
.grid{stroke:var(--line);stroke-width:1}
ul{list-style:none;margin:0;padding:0}
.row{padding:3px 0}
.row{display:grid;grid-template-columns:minmax(0,1fr) auto;column-gap:10px;align-items:baseline}
.row>b{font:500 .85rem ui-monospace,monospace;overflow-wrap:anywhere}
.row>span{font-size:.85rem;font-variant-numeric:tabular-nums;white-space:nowrap}
.row>i{grid-column:1/-1;height:5px;border-radius:3px;background:var(--empty);overflow:hidden}
.row>i:before{content:"";display:block;height:100%;width:var(--share);min-width:2px;background:var(--bar)}
.row.red>i:before{background:var(--loss)}
details details,details>ul{margin-left:12px}
summary{cursor:pointer}
summary.row>b:before{content:"▸ ";color:var(--soft)}
details[open]>summary.row>b:before{content:"▾ "}
details>summary:not(.row){color:var(--soft);font-size:.85rem;padding:4px 0}
.scroll{overflow-x:auto;max-height:60vh}
table{border-collapse:collapse;width:100%;font-size:.82rem;font-variant-numeric:tabular-nums}
th,td{padding:3px 8px 3px 0;text-align:right;border-bottom:1px solid var(--line);vertical-align:top}
td,thead th{white-space:nowrap}
th:first-child{text-align:left;white-space:normal;overflow-wrap:anywhere;min-width:9em}
thead th{font-weight:500;color:var(--soft)}
tbody th{font-weight:400}
"""
