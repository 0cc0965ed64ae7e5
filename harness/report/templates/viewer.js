"use strict";
/* Filters, sorts and draws what the report has said; it judges nothing, and puts text into the page as text only. */
const DATA = JSON.parse(document.getElementById("data").textContent);
const SVG = "http://www.w3.org/2000/svg";
const TONES = { PASS: "good", SLOW: "slow", BELOW_TARGET: "slow", UNRESOLVED: "unsure", INFRA: "unsure" };
const LETTERS = { PASS: ".", HANG: "H", CRASH: "C", OOM: "O", NONFINITE: "N", SLOW: "s", BELOW_TARGET: "b", INFRA: "i", UNRESOLVED: "?" };
const PHASES = ["forward", "backward", "optim", "reduce", "data", "build", "save", "step"];

const tone = (trial) => (trial.answer === "bad" ? "bad" : TONES[trial.kind] || "bad");

/* As harness.report.text.seconds has it. */
function seconds(value) {
  if (value === null || value === undefined) return "-";
  if (value < 0.0995) return `${value.toFixed(3)} s`;
  if (value < 10) return `${value.toFixed(value >= 0.995 ? 1 : 2)} s`;
  const whole = Math.round(value);
  if (whole < 120) return `${whole} s`;
  if (whole < 7200) return `${Math.floor(whole / 60)} min ${whole % 60} s`;
  return `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
}

function size(bytes) {
  if (!bytes) return "-";
  const mib = bytes / 1048576;
  return mib < 1024 ? `${mib.toFixed(mib < 10 ? 1 : 0)} MiB` : `${(mib / 1024).toFixed(1)} GiB`;
}

const count = (number, noun) => `${number} ${noun}${number === 1 ? "" : "s"}`;

function el(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (value !== null && value !== false) made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return made;
}

function draw(name, attributes = {}, ...children) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else made.setAttribute(key, value);
  }
  made.append(...children.filter((child) => child !== null));
  return made;
}

/* --- A table that can be filtered and sorted ------------------------------------------------------------------- */

/* columns: {name, text(row), value(row), right, kind(row), node(row)}; choices: {name, of(row): [..]}. */
function table({ rows, columns, choices, open, chosen, label }) {
  const state = { words: "", picked: new Map(), by: null, down: false };
  const body = el("tbody");
  const shown = el("p", { class: "count", "aria-live": "polite" });
  const head = el("tr", {}, columns.map((column, number) => {
    const button = el("button", { type: "button", onclick: () => sort(number) }, column.name || "result");
    return el("th", { scope: "col", class: column.right ? "right" : null }, button);
  }));
  const filters = el("div", { class: "filters" });
  if (rows.length > 1) {
    filters.append(el("input", {
      type: "search", placeholder: `filter ${label}`, "aria-label": `filter ${label}`,
      oninput: (event) => { state.words = event.target.value.toLowerCase(); fill(); },
    }));
    for (const choice of choices) {
      const values = [...new Set(rows.flatMap(choice.of))];
      if (values.length < 2 || values.length > 16) continue;
      const select = el("select", { "aria-label": choice.name, onchange: (event) => {
        state.picked.set(choice, event.target.value); fill();
      } }, el("option", { value: "" }, `${choice.name}: any`), values.map((value) => el("option", { value }, `${choice.name}: ${value}`)));
      filters.append(select);
    }
  }

  function sort(number) {
    state.down = state.by === number ? !state.down : false;
    state.by = number;
    [...head.children].forEach((cell, i) => {
      if (i === number) cell.setAttribute("aria-sort", state.down ? "descending" : "ascending");
      else cell.removeAttribute("aria-sort");
    });
    fill();
  }

  function fits(row) {
    const words = columns.map((column) => column.text(row)).join(" ").toLowerCase();
    const picked = [...state.picked].every(([choice, value]) => !value || choice.of(row).map(String).includes(value));
    return picked && state.words.split(/\s+/).every((word) => words.includes(word));
  }

  function fill() {
    const found = rows.filter(fits);
    if (state.by !== null) {
      const column = columns[state.by], key = column.value || column.text;
      found.sort((one, other) => compared(key(one), key(other)) * (state.down ? -1 : 1));
    }
    body.replaceChildren(...found.map((row) => line(row)));
    shown.textContent = found.length === rows.length ? count(rows.length, label) : `${found.length} of ${count(rows.length, label)}`;
  }

  function line(row) {
    const cells = columns.map((column, number) => {
      const text = column.text(row);
      const inside = column.node ? column.node(row) : text;
      const holder = open && number === 0 ? el("button", { type: "button", class: "open", onclick: () => open(row) }, inside) : inside;
      return el("td", { class: [column.right ? "right" : "", column.kind ? `tone-${column.kind(row)} verdict` : ""].join(" ").trim() || null }, holder);
    });
    return el("tr", { class: chosen && chosen(row) ? "chosen" : null }, cells);
  }

  fill();
  const box = el("div", {}, filters, shown, el("div", { class: "table", tabindex: "0" }, el("table", {}, el("thead", {}, head), body)));
  box.refresh = fill;
  return box;
}

function compared(one, other) {
  if (one === other) return 0;
  if (one === null || one === undefined) return 1;
  if (other === null || other === undefined) return -1;
  if (typeof one === "number" && typeof other === "number") return one - other;
  return String(one).localeCompare(String(other), undefined, { numeric: true });
}

const text = (value) => (value === null || value === undefined ? "-" : String(value));

/* --- A run ------------------------------------------------------------------------------------------------------ */

function nameOf(run, at) {
  const settings = run.axes.map((axis, i) => `${axis}=${text(at[i])}`).join(", ") || "the program";
  const control = at[at.length - 1];
  return control ? `${settings}, ${control}` : settings;
}

function worst(run, numbers) {
  const bad = numbers.find((n) => run.trials[n].answer === "bad");
  const odd = numbers.find((n) => run.trials[n].kind !== "PASS");
  return bad ?? odd ?? numbers[0];
}

function cellsTable(run, show, isShown) {
  const axes = run.axes.map((axis, i) => ({ name: axis, text: (row) => text(row.at[i]), value: (row) => row.at[i], right: run.cells.every((row) => typeof row.at[i] === "number") }));
  const hasControls = run.cells.some((row) => row.at[row.at.length - 1]);
  const columns = [
    { name: "ended in", text: (row) => row.seen || row.because || "not run", kind: (row) => (row.trials.length ? tone(run.trials[worst(run, row.trials)]) : "unsure") },
    ...axes,
    ...(hasControls ? [{ name: "control", text: (row) => row.at[row.at.length - 1] || "-" }] : []),
    { name: "passed", text: (row) => `${row.good}/${row.trials.length}`, value: (row) => (row.trials.length ? row.good / row.trials.length : null), right: true },
    { name: "failed", text: (row) => `${row.bad}/${row.trials.length}`, value: (row) => (row.trials.length ? row.bad / row.trials.length : null), right: true },
    { name: "a pass takes", text: (row) => seconds(row.pass_s), value: (row) => row.pass_s, right: true },
    { name: "all its trials", text: (row) => (row.trials.length ? seconds(row.all_s) : "-"), value: (row) => row.all_s, right: true },
    { name: "peak memory", text: (row) => size(row.peak), value: (row) => row.peak || null, right: true },
  ];
  const choices = [
    { name: "ended in", of: (row) => (row.kinds.length ? row.kinds : ["not run"]) },
    ...run.axes.map((axis, i) => ({ name: axis, of: (row) => [text(row.at[i])] })),
  ];
  return table({
    rows: run.cells, columns, choices, label: "cell",
    open: (row) => { if (row.trials.length) show(worst(run, row.trials)); },
    chosen: (row) => row.trials.includes(isShown()),
  });
}

function trialsTable(run, show, isShown) {
  const rows = run.trials.map((trial, number) => ({ ...trial, number }));
  const columns = [
    { name: "#", text: (row) => String(row.number + 1), value: (row) => row.number, right: true },
    { name: "cell", text: (row) => nameOf(run, row.at) },
    { name: "ended in", text: (row) => row.verdict, kind: tone },
    { name: "why it was run", text: (row) => row.role },
    { name: "seconds", text: (row) => seconds(row.seconds), value: (row) => row.seconds, right: true },
    { name: "steps", text: (row) => (row.steps === null ? "-" : String(row.steps)), value: (row) => row.steps, right: true },
    { name: "longest between marks", text: (row) => (row.silent ? seconds(row.silent) : "-"), value: (row) => row.silent, right: true },
    { name: "ended", text: (row) => row.ended },
  ];
  return table({
    rows, columns, label: "trial", open: (row) => show(row.number), chosen: (row) => row.number === isShown(),
    choices: [{ name: "ended in", of: (row) => [row.verdict] }, { name: "why it was run", of: (row) => [row.role] }],
  });
}

/* Every trial in the order of running, a row for each place that was tried: how the search went. */
function strip(run, show, isShown) {
  const every = run.cells.filter((row) => row.trials.length), rows = every.slice(0, 60);
  const several = run.axes.length > 1, BOX = 17;
  const short = (row) => (several ? [...run.axes.map((_, i) => text(row.at[i])), row.at[run.axes.length]].filter(Boolean).join(" · ") : nameOf(run, row.at));
  const grid = el("div", { class: "grid", style: `grid-template-columns:max-content repeat(${run.trials.length},${BOX}px)` });
  if (several) grid.append(el("span", { class: "place axes", style: "grid-row:1;grid-column:1" }, run.axes.join(" · ")));
  rows.forEach((row, y) => {
    const name = nameOf(run, row.at), line = y + 1 + several;
    grid.append(el("span", { class: "place", title: name, style: `grid-row:${line};grid-column:1` }, short(row)));
    for (const number of row.trials) {
      const trial = run.trials[number];
      grid.append(el("button", {
        type: "button", class: `box tone-${tone(trial)}${number === isShown() ? " chosen" : ""}`, style: `grid-row:${line};grid-column:${number + 2}`,
        title: `trial ${number + 1}, ${name}: ${trial.verdict}, ${seconds(trial.seconds)} (${trial.role})`,
        "aria-label": `trial ${number + 1}, ${name}: ${trial.verdict}`, onclick: () => show(number),
      }, LETTERS[trial.kind] || "x"));
    }
  });
  const kinds = [...new Set(run.trials.map((trial) => trial.kind))];
  const legend = kinds.map((kind) => `${LETTERS[kind] || "x"} ${kind}`).join(", ");
  const more = every.length > rows.length ? ` ${count(every.length - rows.length, "more cell")} in the table only.` : "";
  return el("div", {}, el("div", { class: "strip", tabindex: "0" }, grid), el("p", { class: "note" }, `In the order of running, from left to right. ${legend}.${more}`));
}

/* --- A trial ---------------------------------------------------------------------------------------------------- */

function words(stretch) {
  const [start, end, known, what, step] = stretch;
  const lasts = seconds(end - start);
  const at = step === null ? "" : ` of step ${step}`;
  if (known === "phase") return `${what}${at}, ${lasts}`;
  if (known === "starting") return `no mark yet, ${lasts}`;
  if (known === "not kept") return `${what} marks were not kept, ${lasts}`;
  if (known === "no mark") return `no mark for ${lasts}${what ? `, in ${what}${at}` : ""}`;
  return `between two phases, ${lasts}`;
}

function timeline(trial) {
  const box = el("figure", { class: "timeline" });
  const said = el("p", { class: "said", "aria-live": "polite" }, "Point at a stretch, or step through them with Tab, to read it.");
  const canvas = el("div");
  let from = 0, to = trial.seconds;
  const lasts = trial.tracks.flatMap((track) => track.stretches.filter((s) => s[2] === "no mark").map((s) => s[0]));
  const quiet = lasts.length ? Math.min(...lasts) : trial.seconds;
  const views = [
    ["whole trial", 0, trial.seconds],
    ["until the last mark", 0, Math.max(...(lasts.length ? lasts : [trial.seconds])) * 1.02 || trial.seconds],
    ["around the first silence", Math.max(0, quiet - Math.max(0.25 * (trial.seconds - quiet), 0.3)), trial.seconds],
  ];
  const zoom = (factor) => { const middle = (from + to) / 2, half = ((to - from) * factor) / 2; set(middle - half, middle + half); };
  const move = (share) => { const by = (to - from) * share; set(from + by, to + by); };
  const set = (low, high) => {
    const width = Math.min(Math.max(high - low, 0.002), trial.seconds);
    from = Math.min(Math.max(0, low), trial.seconds - width);
    to = from + width;
    paint();
  };
  const buttons = el("div", { class: "filters" },
    views.map(([name, low, high]) => el("button", { type: "button", onclick: () => set(low, high) }, name)),
    [["+", "closer", () => zoom(0.5)], ["−", "further", () => zoom(2)], ["←", "earlier", () => move(-0.4)], ["→", "later", () => move(0.4)]]
      .map(([sign, label, does]) => el("button", { type: "button", class: "sign", "aria-label": label, onclick: does }, sign)));
  const tell = (message) => ({ onmouseenter: () => { said.textContent = message; }, onfocus: () => { said.textContent = message; }, onclick: () => { said.textContent = message; }, tabindex: "0", role: "img", "aria-label": message });

  function paint() {
    const width = Math.max(260, canvas.clientWidth || 640), left = 66, right = 8, ROW = 40;
    const x = (t) => left + ((t - from) / (to - from)) * (width - left - right);
    const rows = trial.tracks.length, height = rows * ROW + 62;
    const svg = draw("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "group", "aria-label": `from ${seconds(from)} to ${seconds(to)} of the trial` });
    svg.append(draw("defs", {}, draw("pattern", { id: "hatch", width: 7, height: 7, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" }, draw("line", { x1: 0, y1: 0, x2: 0, y2: 7, class: "hatch" }))));
    trial.tracks.forEach((track, row) => {
      const y = row * ROW + 6;
      svg.append(label(track.name, 0, y + 17));
      for (const stretch of track.stretches) {
        const [start, end, known, what] = stretch;
        const a = Math.max(x(start), left), b = Math.min(x(end), width - right);
        if (b <= left || a >= width - right || known === "between") continue;
        const wide = Math.max(b - a, 1), name = known === "phase" ? `phase p-${PHASES.includes(what) ? what : "other"}` : known === "no mark" && !what ? "starting" : known.replace(" ", "-");
        svg.append(draw("rect", { x: a, y, width: wide, height: 22, class: name, ...tell(`${track.name}, from ${seconds(start)}: ${words(stretch)}`) }));
        const short = known === "phase" ? what : known === "starting" ? "no mark yet" : words(stretch);
        const fit = [words(stretch), short].find((one) => one.length * 6.4 < wide - 6);
        if (fit) svg.append(label(fit, (a + b) / 2, y + 15, "middle", known === "no mark" ? "strong" : ""));
      }
      for (const [start, end, name, phase] of track.parts) {
        const a = Math.max(x(start), left), b = Math.min(x(end), width - right);
        if (b <= left || a >= width - right) continue;
        svg.append(draw("rect", { x: a, y: y + 23, width: Math.max(b - a - 0.6, 0.6), height: 9, class: `part p-${PHASES.includes(phase) ? phase : "other"}`, ...tell(`${track.name}, ${phase} of ${name} done at ${seconds(end)}, ${seconds(end - start)} after the mark before it`) }));
      }
      if (track.ended !== null && track.ended >= from && track.ended <= to) {
        svg.append(draw("line", { x1: x(track.ended), x2: x(track.ended), y1: y - 3, y2: y + 32, class: "end", ...tell(`${track.name} ended by itself at ${seconds(track.ended)}: ${track.how || "how is not known"}`) }));
      }
    });
    const y = rows * ROW + 12;
    svg.append(label("harness", 0, y + 4));
    for (const sample of trial.samples) mark(sample.t, "▼", `stacks of ${sample.who} taken by ${sample.source} at ${seconds(sample.t)}`);
    for (const [t, name] of trial.signals) mark(t, "✕", `we sent ${name} at ${seconds(t)}`);
    function mark(t, sign, message) {
      if (t < from || t > to) return;
      svg.append(draw("text", { x: x(t), y: y + 5, "text-anchor": "middle", class: "sign", ...tell(message) }, sign));
    }
    const wanted = Math.max(2, Math.floor((width - left) / 90)), step = nice((to - from) / wanted);
    for (let t = Math.ceil(from / step) * step; t <= to + 1e-9; t += step) {
      const at = x(t);
      svg.append(draw("line", { x1: at, x2: at, y1: 0, y2: y + 12, class: "tick" }));
      const shown = step < 1 ? t.toFixed(Math.min(3, Math.ceil(-Math.log10(step)))) : String(Math.round(t));
      if (at < width - 22) svg.append(label(shown, at, y + 28, "middle", "axis"));
    }
    svg.append(label("seconds since the start", width - right, y + 43, "end", "axis"));
    canvas.replaceChildren(svg);
  }
  function label(said_, x, y, anchor = "start", kind = "") {
    return draw("text", { x, y, "text-anchor": anchor, class: `label ${kind}` }, said_);
  }
  box.append(buttons, canvas, said);
  let drawnAt = 0;
  paint(); // at once, at a usual width: a browser without a frame to show (a hidden tab, a printout) never calls the observer
  new ResizeObserver(() => requestAnimationFrame(() => {
    if (canvas.clientWidth !== drawnAt) { drawnAt = canvas.clientWidth; paint(); }
  })).observe(canvas);
  return box;
}

function nice(step) {
  const power = 10 ** Math.floor(Math.log10(step || 1));
  return [1, 2, 5, 10].map((n) => n * power).find((n) => n >= step) || step;
}

/* Stacks taken at about one time, a column for each rank, or for each thread of a single one. */
function stacks(run, trial) {
  const rounds = [];
  for (const sample of trial.samples) {
    const last = rounds[rounds.length - 1];
    if (last && !last.some((one) => one.who === sample.who)) last.push(sample);
    else rounds.push([sample]);
  }
  const everybody = new Set(trial.samples.map((one) => one.who));
  const chosen = Math.max(0, rounds.findIndex((round) => round.some((one) => one.id === trial.decides)));
  const holder = el("div", { class: "columns", tabindex: "0" });
  const all = el("input", { type: "checkbox", onchange: () => paint(Number(pick.value)) });
  const native = el("input", { type: "checkbox", checked: true, onchange: () => paint(Number(pick.value)) });
  const pick = el("select", { "aria-label": "when", onchange: (event) => paint(Number(event.target.value)) },
    rounds.map((round, i) => el("option", { value: i, selected: i === chosen }, `at ${seconds(round[0].t)}, ${round.map((one) => one.id).join(", ")}`)));
  const hasNative = trial.samples.some((sample) => sample.threads.some((number) => run.stacks[number][0].some((frame) => run.frames[frame][1])));

  function paint(number) {
    const round = rounds[number];
    const several = round.length > 1;
    const columns = round.flatMap((sample) => {
      const wanted = all.checked || !several ? sample.threads.map((_, i) => i) : [sample.main];
      const order = [sample.main, ...wanted.filter((i) => i !== sample.main)];
      return order.filter((i) => wanted.includes(i)).map((i) => ({ title: everybody.size > 1 ? `${sample.who}: ${sample.names[i]}` : sample.names[i], stack: run.stacks[sample.threads[i]], where: `process ${sample.pid}, by ${sample.source} at ${seconds(sample.t)}` }));
    });
    const shared = columns.length > 1 ? columns.map((one) => new Set(one.stack[0])).reduce((a, b) => new Set([...a].filter((frame) => b.has(frame)))) : new Set();
    holder.replaceChildren(...columns.map(({ title, stack, where }) => {
      const [frames, tells, more] = stack;
      const lines = frames.map((frame, i) => {
        const [name, isNative] = run.frames[frame];
        if (isNative && !native.checked) return null;
        return el("li", { class: [i === tells ? "tells" : "", isNative ? "native" : "", shared.has(frame) ? "shared" : ""].join(" ").trim() || null }, name);
      });
      if (more) lines.push(el("li", { class: "native" }, `${more} more frames`));
      if (!frames.length) lines.push(el("li", { class: "native" }, "no frames"));
      return el("div", { class: "stack" }, el("h4", {}, title), el("p", { class: "note" }, where), el("ol", {}, lines));
    }));
  }
  if (!rounds.length) return el("p", {}, trial.no_stacks.length ? `No stack could be taken: ${trial.no_stacks.join("; ")}` : "No stack was taken.");
  paint(chosen);
  const choices = [rounds.length > 1 ? pick : el("span", {}, pick.options[0].textContent)];
  if (everybody.size > 1) choices.push(el("label", {}, all, " all threads"));
  if (hasNative) choices.push(el("label", {}, native, " compiled frames"));
  return el("div", {}, el("div", { class: "filters" }, choices), holder, el("p", { class: "note" }, "Innermost first. Marked: the frame to look at. Faint: frames that every column shares."));
}

function trialPanel(run, number, prefix) {
  if (number === null || number === undefined) return el("div", { class: "trial" }, el("p", {}, `${prefix}: no trial here.`));
  const trial = run.trials[number];
  const title = `${prefix ? `${prefix}: ` : ""}trial ${number + 1}, ${nameOf(run, trial.at)}`;
  const parts = [
    el("h3", { class: `tone-${tone(trial)}` }, el("span", { class: "verdict" }, trial.verdict), ` ${title}`),
    el("p", {}, trial.because),
    el("p", { class: "run" }, `${trial.judged}; ${seconds(trial.seconds)} (${trial.limit === null ? "no limit" : `limit ${seconds(trial.limit)}`}); ${trial.steps === null ? "" : `${count(trial.steps, "step")} done; longest silence between two marks ${seconds(trial.silent)}; `}${trial.ended}.`),
  ];
  if (trial.missing) parts.push(el("p", { class: "note" }, trial.missing));
  else if (!trial.tracks) parts.push(el("p", { class: "note" }, `The page has marks and stacks of ${count(run.detailed, "trial")}, and not of this one; the run's folder has them.`));
  else {
    if (trial.tracks.length) parts.push(timeline(trial));
    else parts.push(el("p", { class: "note" }, "It left no marks, so there is nothing to draw along its time."));
    parts.push(el("h4", {}, "Stacks"), stacks(run, trial));
    for (const [stream, said] of trial.output) parts.push(el("details", {}, el("summary", {}, `The end of ${stream}`), el("pre", {}, said)));
  }
  return el("div", { class: "trial" }, parts);
}

/* --- Pages ------------------------------------------------------------------------------------------------------ */

function section(id, title, ...children) {
  return el("section", { id }, el("h2", {}, title), ...children);
}

function firstScreen(run) {
  const next = run.next_steps[0];
  const claim = run.claim_word.charAt(0).toUpperCase() + run.claim_word.slice(1);
  const item = (title, ...inside) => el("div", { class: title === "Next step" ? "next" : null }, el("dt", {}, title), el("dd", {}, ...inside));
  return el("dl", { class: "first" },
    item("How sure", ...run.sure.map((sentence, i) => el("p", {}, i || !run.claim_word ? null : el("b", {}, `${claim}. `), sentence)), ...run.notes.map((note) => el("small", {}, `Note: ${note}`))),
    item("Rank and line", el("b", {}, run.before_place), run.place, run.judged ? el("small", {}, run.judged) : null),
    ...(run.job_line ? [item("Job", el("code", {}, run.job.command), ` ${run.job_line}`)] : []),
    item("Next step", next ? next.text : run.answered, next && next.command.length ? el("pre", {}, next.command.map(quoted).join(" ")) : null));
}

const quoted = (word) => (/^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\"'\"'")}'`);

function runPage(run) {
  let current = run.subject ?? 0;
  const asked = Number((location.hash.match(/^#trial=(\d+)$/) || [])[1]);
  if (asked >= 1 && asked <= run.trials.length) current = asked - 1;
  const isShown = () => current;
  const holder = el("section", { id: "trial", tabindex: "-1" });
  const stripHolder = el("div");
  const show = (number, jump = true) => {
    current = number;
    history.replaceState(null, "", `#trial=${number + 1}`);
    paint();
    if (jump) { holder.scrollIntoView({ block: "start" }); holder.focus({ preventScroll: true }); }
  };
  const cells = cellsTable(run, show, isShown), trials = trialsTable(run, show, isShown);
  function paint() {
    stripHolder.replaceChildren(strip(run, show, isShown));
    cells.refresh();
    trials.refresh();
    const before = el("button", { type: "button", disabled: current === 0, onclick: () => show(current - 1, false) }, "← earlier trial");
    const after = el("button", { type: "button", disabled: current === run.trials.length - 1, onclick: () => show(current + 1, false) }, "later trial →");
    holder.replaceChildren(el("h2", {}, "One trial"), el("div", { class: "filters" }, before, after), trialPanel(run, current, ""));
  }
  const parts = [firstScreen(run), el("p", { class: "run" }, `${run.tally}; ${run.started}; ${run.id}${run.ended}.`)];
  if (!run.trials.length) return [...parts, el("p", {}, "No trial was finished, so there is nothing to look into.")];
  paint();
  return [
    ...parts,
    section("search", "How the search went", stripHolder),
    section("cells", "Cells", cells),
    holder,
    section("trials", "All trials", el("details", {}, el("summary", {}, `Every trial (${run.trials.length}), in the order of running`), trials)),
  ];
}

function comparePage([before, after]) {
  const holder = el("section", { id: "trial", tabindex: "-1" });
  const rows = DATA.pairs.map((pair, number) => ({ ...pair, number }));
  const first = [...rows].sort((a, b) => a.order - b.order)[0];
  let current = first ? first.number : null;
  const columns = [
    { name: "cell", text: (row) => row.name },
    { name: "before", text: (row) => row.before || "-" },
    { name: "after", text: (row) => row.after || "-" },
    { name: "change", text: (row) => row.change, value: (row) => row.order, kind: (row) => row.tone },
    { name: "the trials differ in", text: (row) => row.changed.join(", ") || "-" },
  ];
  const show = (row, jump = true) => {
    current = row.number;
    cells.refresh();
    holder.replaceChildren(el("h2", {}, `Side by side: ${row.name}`), el("div", { class: "pair" }, trialPanel(before, row.trials[0], "before"), trialPanel(after, row.trials[1], "after")));
    if (jump) { holder.scrollIntoView({ block: "start" }); holder.focus({ preventScroll: true }); }
  };
  const cells = table({ rows, columns, label: "cell", choices: [{ name: "change", of: (row) => [row.change] }], open: show, chosen: (row) => row.number === current });
  if (first) show(first, false);
  const about = (name, run) => el("p", { class: "run" }, `${name}: ${run.verdict}. ${run.tally}; ${run.started}; ${run.id}; code ${run.code}.`);
  return [about("Before", before), about("After", after), section("cells", "What changed", cells), holder];
}

function indexPage(rows) {
  const link = (row) => el("span", { class: "links" }, row.links.flatMap(([name, href]) => [el("a", { href }, name), " "]));
  const columns = [
    { name: "begun", text: (row) => row.started || "-" },
    { name: "question", text: (row) => row.question },
    { name: "answer", text: (row) => row.answer },
    { name: "trials", text: (row) => String(row.trials), value: (row) => row.trials, right: true },
    { name: "ended", text: (row) => row.ended },
    { name: "pages", text: (row) => row.name, node: (row) => el("span", {}, link(row), el("small", {}, row.name)) },
  ];
  return [section("runs", "Runs", table({ rows, columns, label: "run", choices: [{ name: "ended", of: (row) => [row.ended] }, { name: "question", of: (row) => [row.question] }] }))];
}

const main = document.querySelector("main");
if (DATA.index) main.append(...indexPage(DATA.index));
else if (DATA.runs.length > 1) main.append(...comparePage(DATA.runs));
else main.append(...runPage(DATA.runs[0]));
