"use strict";
// The page is whole without this script, which renews it, and follows logs.

const live = document.getElementById("live");
const down = document.getElementById("down");
document.documentElement.classList.add("script");

// morph makes a look like b with as few changes as possible, so that focus, selection and what is announced stay.
// Elements with the same data-key or ID are the same.
function morph(a, b) {
  if (a.nodeType === Node.TEXT_NODE) {
    if (a.data !== b.data) a.data = b.data;
    return;
  }
  for (const { name } of [...a.attributes]) if (!b.hasAttribute(name) && name !== "open") a.removeAttribute(name);
  for (const { name, value } of b.attributes) if (a.getAttribute(name) !== value && name !== "open") a.setAttribute(name, value);
  const key = (n) => (n.dataset?.key || n.id) && n.nodeName + " " + (n.dataset.key || n.id);
  const old = new Map([...a.children].filter(key).map((n) => [key(n), n]));
  const wanted = new Set([...b.children].map(key));
  let at = a.firstChild;
  const drop = () => {
    const gone = at;
    at = at.nextSibling;
    gone.remove();
  };
  for (const n of [...b.childNodes]) {
    const m = key(n) ? old.get(key(n)) : at && !key(at) && at.nodeName === n.nodeName ? at : null;
    if (!m) {
      a.insertBefore(n, at);
      continue;
    }
    // What is before m and has gone is removed, rather than m moved: a move loses the focus.
    while (at && at !== m && !wanted.has(key(at) || 0)) drop();
    if (at === m) at = at.nextSibling;
    else a.insertBefore(m, at);
    morph(m, n);
  }
  while (at) drop();
}

let answered = new Date();
let asking = null;
let timer = 0;

// renew asks for what changes of the page.
async function renew() {
  clearTimeout(timer);
  asking?.abort();
  const mine = (asking = new AbortController());
  const wait = setTimeout(() => mine.abort(new Error("late")), 20000);
  try {
    const query = new URLSearchParams(location.search);
    query.set("part", "");
    const answer = await fetch(location.pathname + "?" + query, { cache: "no-store", signal: mine.signal });
    const text = await answer.text();
    if (mine !== asking) return;
    if (answer.ok) {
      const t = document.createElement("template");
      t.innerHTML = text;
      const focus = document.activeElement;
      morph(live, t.content.firstElementChild);
      if (focus !== document.activeElement && focus.isConnected) focus.focus({ preventScroll: true });
      document.title = live.dataset.title;
      answered = new Date();
      say("");
    } else if (answer.status !== 429) {
      say(answer.status === 502 ? "The agent does not answer" : text.trim(), answer.status === 502);
    }
  } catch {
    if (mine !== asking) return;
    say("Nobody answers", true);
  } finally {
    clearTimeout(wait);
    if (mine === asking) timer = setTimeout(renew, document.hidden ? 15000 : 3000);
  }
}

// say tells that what is shown is old, or with "" that it is not.
function say(text, agent) {
  const since = answered.toLocaleTimeString("en-GB");
  if (agent) text += " since " + since + ". Pods keep running without the agent. Below is what was known then.";
  if (down.textContent !== text) down.textContent = text; // said once
  if (text) live.classList.add("stale");
  if (agent) document.title = document.title.replace(/:.*/, ": no answer");
}
timer = setTimeout(renew, 3000);

// The filter is kept in the address.
let typed = 0;
live.addEventListener("input", (e) => {
  const form = e.target.form;
  if (!form) return;
  const query = new URLSearchParams([...new FormData(form)].filter(([, v]) => v));
  history.replaceState(null, "", query.size ? "?" + query : location.pathname);
  clearTimeout(typed);
  typed = setTimeout(renew, 150);
});
live.addEventListener("submit", (e) => {
  e.preventDefault();
  renew();
});
addEventListener("keydown", (e) => {
  if (e.key !== "/" || e.ctrlKey || e.metaKey || e.altKey || /INPUT|SELECT|TEXTAREA/.test(e.target.nodeName)) return;
  const search = document.querySelector("input[type=search]");
  if (search) {
    e.preventDefault();
    search.focus();
  }
});

// Logs: every container that is chosen is followed; lines stand in the order of their times.
const most = 5000; // lines
const box = document.querySelector(".lines");
if (box) follow(box, document.querySelector("form.tools"));

function follow(box, tools) {
  const logs = [...box.querySelectorAll("pre")].map((p) => ({ name: p.dataset.container, url: p.dataset.log, stop: null }));
  const out = tools.querySelector("output");
  const at = tools.elements;
  let held = [];
  box.replaceChildren();
  box.classList.add("live", "wrap");
  tools.hidden = false;

  const hit = (text) => !at.find.value || text.toLowerCase().includes(at.find.value.toLowerCase());

  // paint writes a line's text, with what is searched for marked.
  function paint(line) {
    const text = line.words, find = at.find.value.toLowerCase();
    line.hidden = !hit(text);
    const parts = [];
    for (let from = 0, i; find && !line.hidden; from = i + find.length) {
      i = text.toLowerCase().indexOf(find, from);
      parts.push(text.slice(from, i < 0 ? undefined : i));
      if (i < 0) break;
      const m = document.createElement("mark");
      m.textContent = text.slice(i, i + find.length);
      parts.push(m);
    }
    line.lastChild.replaceChildren(...(parts.length ? parts : [text]));
  }
  function count() {
    const shown = at.find.value ? [...box.children].filter((l) => !l.hidden).length + " of " : "";
    out.textContent = shown + box.children.length + " lines" + (held.length ? ", " + held.length + " wait" : "");
  }
  function add(lines) {
    const end = box.scrollTop + box.clientHeight > box.scrollHeight - 30;
    for (const l of lines) {
      const div = document.createElement("div");
      const time = document.createElement("time"), name = document.createElement("i"), text = document.createElement("span");
      time.textContent = l.time.slice(0, 23).replace("T", " ");
      name.textContent = l.name;
      Object.assign(div, { when: l.time, words: l.text, log: l.log });
      if (l.note) div.className = "note";
      div.append(time, name, text);
      paint(div);
      let before = null;
      let last = box.lastElementChild;
      while (last && l.time && last.when > l.time) {
        before = last;
        last = last.previousElementSibling;
      }
      box.insertBefore(div, before);
    }
    while (box.children.length > most) box.firstElementChild.remove();
    if (end) box.scrollTop = box.scrollHeight;
    count();
  }
  function take(lines) {
    if (at.pause.getAttribute("aria-pressed") === "true") {
      held = held.concat(lines).slice(-most);
      count();
    } else {
      add(lines);
    }
  }
  // Times have as many digits each, so that they are in the order of their letters.
  const line = (log, text) => {
    const blank = text.indexOf(" ");
    const time = text.slice(0, blank).replace(/(\.\d+)?(Z|[+-]\d\d:\d\d)$/, (_, part = ".", zone) => part.padEnd(10, "0") + zone);
    return { log, name: log.name, time, text: text.slice(blank + 1).replace(/\x1b\[[0-9;?]*[A-Za-z]/g, "") };
  };

  // read follows a log until it is stopped: that of the next run when one has ended.
  async function read(log) {
    const mine = (log.stop = new AbortController());
    let last = "", said = "";
    while (!mine.signal.aborted) {
      const query = new URLSearchParams({ timestamps: "", tail: last ? 10000 : 1000 });
      query.set(at.previous.checked ? "previous" : "follow", "");
      if (last) query.set("since", last);
      try {
        const answer = await fetch(log.url + "?" + query, { signal: mine.signal });
        if (!answer.ok) throw new Error((await answer.text()).trim());
        const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
        for (let rest = ""; ; ) {
          const { done, value } = await reader.read();
          const parts = (rest + (value ?? "")).split("\n");
          rest = done ? "" : parts.pop().slice(-100000);
          const lines = parts.filter(Boolean).map((p) => line(log, p)).filter((l) => !last || l.time > last);
          if (lines.length) last = lines.at(-1).time;
          if (mine.signal.aborted) return;
          if (lines.length) take(lines.slice(-most));
          if (done) break;
        }
        said = "";
      } catch (e) {
        if (mine.signal.aborted) return;
        if (e.message !== said) take([{ log, name: log.name, time: "", text: "(" + e.message + ")", note: true }]);
        said = e.message;
      }
      if (at.previous.checked) return;
      await new Promise((r) => setTimeout(r, 3000));
    }
  }

  // choose begins to follow what is chosen, and ends the rest. A browser has six connections to a server.
  function choose(anew) {
    const boxes = [...tools.querySelectorAll("input[name=c]")];
    const chosen = boxes.filter((b) => b.checked).map((b) => logs[b.value]).slice(0, 4);
    for (const log of logs) {
      if (log.stop && (anew || !chosen.includes(log))) {
        log.stop.abort();
        log.stop = null;
        held = held.filter((l) => l.log !== log);
        for (const l of [...box.children]) if (l.log === log) l.remove();
      }
      if (!log.stop && chosen.includes(log)) read(log);
    }
    for (const b of boxes) b.disabled = chosen.length === 4 && !b.checked;
    box.classList.toggle("several", chosen.length > 1);
    const save = tools.querySelector("a[download]");
    if (chosen.length) save.href = chosen[0].url + "?download&tail=100000" + (at.previous.checked ? "&previous" : "") + (at.times.checked ? "&timestamps" : "");
    else save.removeAttribute("href");
    save.textContent = chosen.length > 1 ? "Download " + chosen[0].name : "Download";
    count();
  }
  tools.addEventListener("input", (e) => {
    if (e.target.name === "find") {
      [...box.children].forEach(paint);
      box.scrollTop = box.scrollHeight;
      count();
      return;
    }
    box.classList.toggle("times", at.times.checked);
    box.classList.toggle("wrap", at.wrap.checked);
    choose(e.target.name === "previous");
  });
  tools.addEventListener("submit", (e) => e.preventDefault());
  at.pause.addEventListener("click", () => {
    const paused = at.pause.getAttribute("aria-pressed") !== "true";
    at.pause.setAttribute("aria-pressed", paused);
    at.pause.textContent = paused ? "Go on" : "Pause";
    if (!paused) {
      add(held.splice(0));
      box.scrollTop = box.scrollHeight;
    }
    count();
  });
  choose();
}
