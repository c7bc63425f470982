/* What every page shares: building elements from data (never from markup), loading data, the address, charts.

   Data comes in script files because a page opened from a file may not fetch. Everything in it is text: it reaches the
   page through textContent and attributes only, and a link is followed only if it is relative or http(s). */
"use strict";

const dashboard = (() => {
  const pending = new Map();

  /* Called by data files. */
  function receive(name, content) {
    pending.get(name)?.resolve(content);
  }

  function script(path) {
    return new Promise((resolve, reject) => {
      const node = document.createElement("script");
      node.src = path;
      node.onload = () => resolve();
      node.onerror = () => reject(new Error(`${path} could not be loaded`));
      document.head.append(node);
    });
  }

  /* The content of dashboard/data/NAME.js, loaded once. */
  function load(name) {
    if (!pending.has(name)) {
      const entry = {};
      entry.promise = new Promise((resolve, reject) => Object.assign(entry, { resolve, reject }));
      pending.set(name, entry);
      script(`dashboard/data/${name}.js`).catch(entry.reject);
    }
    return pending.get(name).promise;
  }

  function element(tag, properties = {}, ...children) {
    const svg = ["svg", "path", "circle"].includes(tag);
    const node = svg ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
    for (const [name, value] of Object.entries(properties)) {
      if (value === null || value === undefined || value === false) continue;
      if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
      else node.setAttribute(name, value === true ? "" : value);
    }
    node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false && child !== ""));
    return node;
  }

  function link(url, ...content) {
    if (!url || !/^(https?:\/\/|(?!\/\/)[^:?#]*([?#]|$))/i.test(url)) return element("span", {}, ...content);
    const away = /^https?:/i.test(url);
    return element("a", { href: url, rel: away ? "noopener noreferrer" : null }, ...content);
  }

  function commit(entry) {
    if (!entry) return null;
    return entry.url ? link(entry.url, element("code", {}, entry.short)) : element("code", {}, entry.short);
  }

  function time(date) {
    return element("time", { datetime: date }, date.slice(0, 10));
  }

  const ICONS = {
    correction: "M2 13.5V11l8-8 2.5 2.5-8 8H2z",
    regression: "M8 13 2 4h12z",
    improvement: "M8 3l6 9H2z",
    environment: "M3 3h10v7H3zM1 12h14v1.5H1z",
    confounded: "M2 2h7v7H2zM7 7h7v7H7z",
    undone: "M7 3 2 8l5 5V9.5c3.5 0 5.5 1 7 3.5 0-4-2.5-7-7-7z",
    change: "M2 7h12v2H2z",
    "first statement": "M4 1v14h1.8V9.5H13L11 6l2-3.5H5.8V1z",
    unverified: "M8 2a6 6 0 1 0 .01 0zM8 4.2a3.8 3.8 0 1 1-.01 0z",
  };

  function badge(kind) {
    const icon = ICONS[kind] && element("svg", { viewBox: "0 0 16 16", "aria-hidden": "true" },
      element("path", { d: ICONS[kind], fill: "currentColor", "fill-rule": "evenodd" }));
    return element("span", { class: `badge kind-${ICONS[kind] ? kind.replace(" ", "-") : "none"}` }, icon, kind);
  }

  function empty(title, text, command) {
    return element("div", { class: "card empty" }, element("h2", {}, title), element("p", {}, text),
      command && element("pre", {}, element("code", {}, command)));
  }

  /* The view in the address: names and values after the hash, so that a view can be linked, also from a file. */
  function state() {
    return new URLSearchParams(location.hash.slice(1));
  }

  function remember(changes) {
    const now = state();
    for (const [name, value] of Object.entries(changes)) {
      if (value === null || value === "") now.delete(name);
      else now.set(name, value);
    }
    history.replaceState(null, "", now.size ? `#${now}` : location.pathname + location.search);
  }

  function select(label, name, options, all) {
    const node = element("select", { name }, all && element("option", { value: "" }, all),
      options.map(([value, text]) => element("option", { value }, text)));
    node.value = state().get(name) ?? (all ? "" : options[0]?.[0] ?? "");
    if (node.selectedIndex < 0) node.selectedIndex = 0;
    return { node, label: element("label", {}, label, node) };
  }

  function search(label, name, hint) {
    const node = element("input", { type: "search", name, placeholder: hint, autocomplete: "off", spellcheck: "false" });
    node.value = state().get(name) ?? "";
    return { node, label: element("label", { class: "wide" }, label, node) };
  }

  function spark(values, words) {
    const seen = values.filter((value) => value !== null);
    if (seen.length < 2) return null;
    const low = Math.min(...seen), high = Math.max(...seen), span = high - low || Math.abs(high) || 1;
    const x = (at) => 2 + (at / (values.length - 1)) * 116;
    const y = (value) => (high === low ? 16 : 29 - ((value - low) / span) * 26);
    let path = "", open = false;
    values.forEach((value, at) => {
      if (value !== null) path += `${open ? "L" : "M"}${x(at).toFixed(1)} ${y(value).toFixed(1)}`;
      open = value !== null;
    });
    const last = values.findLastIndex((value) => value !== null);
    const dots = values.length > 12 ? [] : values.map((value, at) => value !== null && at !== last
      && element("circle", { cx: x(at), cy: y(value), r: 2, class: "old" }));
    return element("svg", { class: "spark", viewBox: "0 0 120 32", role: "img", "aria-label": words },
      element("path", { d: path }), dots, element("circle", { cx: x(last), cy: y(values[last]), r: 3.5 }));
  }

  /* --- charts: descriptions from the same code that draws files, filled with data here --- */
  let vegaReady = null;
  const drawn = new Set();

  function ready() {
    vegaReady ??= Promise.all(["vendor/vega/vega.min.js", "vendor/vega-interpreter/vega-interpreter.min.js", "charts.js"]
      .map((path) => script(`dashboard/${path}`)));
    return vegaReady;
  }

  const tip = element("div", { class: "tip hidden" });

  function showTip(_, event, __, value) {
    if (!value) return tip.classList.add("hidden");
    const pairs = typeof value === "object" ? Object.entries(value) : [["", String(value)]];
    tip.replaceChildren(element("dl", {}, pairs.filter(([, text]) => text !== "" && text !== null && text !== "null")
      .map(([name, text]) => [element("dt", {}, name), element("dd", {}, String(text))])));
    tip.classList.remove("hidden");
    const box = tip.getBoundingClientRect();
    tip.style.left = `${Math.max(4, Math.min(event.clientX + 14, innerWidth - box.width - 4))}px`;
    tip.style.top = `${Math.max(4, Math.min(event.clientY + 14, innerHeight - box.height - 4))}px`;
  }

  /* Draw chart NAME of charts.js into `place`; `data` fills its data sets, `words` its placeholders in titles. */
  async function chart(place, name, data, words, label) {
    await ready();
    if (!tip.isConnected) document.body.append(tip);
    const job = { place, name, data, words, label, view: null };
    for (const other of drawn) {
      if (other.place === place || !other.place.isConnected) { other.view?.finalize(); drawn.delete(other); }
    }
    drawn.add(job);
    await draw(job);
    return job;
  }

  async function draw(job) {
    const theme = dashboardCharts.themes[document.documentElement.dataset.theme];
    const fill = (content) => {
      let text = JSON.stringify(content);
      for (const [name, word] of Object.entries({ ...theme, ...job.words })) {
        text = text.replaceAll(JSON.stringify(Array.isArray(word) ? [`@${name}`] : `@${name}`), () => JSON.stringify(word));
      }
      return JSON.parse(text);
    };
    const spec = fill(dashboardCharts.specs[job.name]);
    for (const set of spec.data) if (set.name in job.data) set.values = job.data[set.name];
    const arms = dashboardCharts.arms.filter((arm) => job.data.points.some((point) => point.arm === arm));
    if (arms.length) {
      Object.assign(spec.scales.find((scale) => scale.name === "color"),
        { domain: arms, range: arms.map((arm) => theme.colors[dashboardCharts.arms.indexOf(arm)]) });
    }
    if (!job.data.points.some((point) => point.state && point.state !== "cold")) { // one kind of point needs no legend
      spec.legends = spec.legends?.filter((legend) => !legend.shape || legend.stroke || legend.fill || spec.scales
        .find((scale) => scale.name === legend.shape)?.domain?.[0] !== "cold");
    }
    const runtime = vega.parse(spec, fill(dashboardCharts.config), { ast: true });
    const view = new vega.View(runtime, { expr: vegaInterpreter.expressionInterpreter, renderer: "svg", hover: true });
    const box = element("div");
    view.tooltip(showTip);
    view.initialize(box);
    job.view?.finalize();
    job.view = view;
    job.place.replaceChildren(box);
    view.width(Math.max(200, job.place.clientWidth));
    await view.runAsync();
    // One picture with one description for a screen reader; its numbers stand in the text or a table beside it.
    box.setAttribute("role", "img");
    box.setAttribute("aria-label", job.label);
    box.removeAttribute("aria-roledescription");
    box.querySelector("svg").setAttribute("aria-hidden", "true");
    job.width = job.place.clientWidth;
  }

  function redraw(all) {
    for (const job of drawn) {
      if (!job.place.isConnected) { job.view?.finalize(); drawn.delete(job); }
      else if (all || job.width !== job.place.clientWidth) draw(job);
    }
  }

  let resizing = 0;
  addEventListener("resize", () => { clearTimeout(resizing); resizing = setTimeout(() => redraw(false), 150); });

  function setUp() {
    document.querySelector(".skip").addEventListener("click", (event) => { // the hash holds the view, so it stays as it is
      event.preventDefault();
      document.getElementById("content").focus();
    });
    const button = document.querySelector(".theme");
    const name = () => { button.textContent = document.documentElement.dataset.theme === "dark" ? "Light theme" : "Dark theme"; };
    name();
    button.hidden = false;
    button.addEventListener("click", () => {
      const theme = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
      document.documentElement.dataset.theme = theme;
      try { localStorage.setItem("theme", theme); } catch { /* not kept then */ }
      name();
      redraw(true);
    });
  }

  /* Run `page(place, data)` with the page's own data, and again whenever the address changes from outside. */
  async function start(name, page) {
    setUp();
    const place = document.getElementById("content");
    try {
      const data = await load(name);
      page(place, data);
      addEventListener("hashchange", () => page(place, data));
    } catch (error) {
      console.error(error);
      place.replaceChildren(empty("This page could not be drawn", `${error.message}. Publish the site again; if it stays so, `
        + "copy the whole folder: the files of its dashboard folder belong to it."));
    }
  }

  return { receive, load, start, element, link, commit, time, badge, empty, state, remember, select, search, spark, chart,
    kinds: Object.keys(ICONS) };
})();
