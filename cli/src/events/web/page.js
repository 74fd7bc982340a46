// Shows the broker's counters; asks for them once a second.
'use strict';

const INTERVAL = 1000;

const element = (name, text, kind) => {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  if (kind) made.className = kind;
  return made;
};
const count = (number) => number.toLocaleString('en');
const rate = (number) => (number >= 100 ? count(Math.round(number)) : number.toFixed(1));
const share = (number) => (100 * number).toFixed(0) + ' %';
const bytes = (number) => {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let at = 0;
  while (number >= 1024 && at < units.length - 1) { number /= 1024; at += 1; }
  return (at === 0 ? number : number.toFixed(1)) + ' ' + units[at];
};

// Columns: [heading, text of a row, class].
const fill = (id, columns, rows, isSlow) => {
  const table = document.getElementById(id);
  const head = element('tr');
  for (const [heading, , kind] of columns) {
    const cell = element('th', heading, kind);
    cell.scope = 'col';
    head.append(cell);
  }
  const body = rows.map((row) => {
    const line = element('tr', undefined, isSlow && isSlow(row) ? 'slow' : undefined);
    line.append(...columns.map(([, text, kind]) => element('td', text(row), kind)));
    return line;
  });
  if (rows.length === 0) {
    const cell = element('td', 'none', 'none');
    cell.colSpan = columns.length;
    const line = element('tr');
    line.append(cell);
    body.push(line);
  }
  table.replaceChildren(head, ...body);
};

// A tenth less than it should get: one event on its way does not make a consumer slow.
const isSlow = (consumer) =>
  consumer.paused || (consumer.waiting > 0 && consumer.delivered_per_s < 0.9 * consumer.matched_per_s);
const named = (consumer) => {
  const group = consumer.programs === undefined ? '' : ' x' + consumer.members;
  const state = consumer.paused ? ' (reads nothing)' : isSlow(consumer) ? ' (slow)' : '';
  return (consumer.name || '-') + group + state;
};

const show = (now) => {
  const sum = (of) => now.consumers.reduce((total, consumer) => total + of(consumer), 0);
  const totals = [
    ['programs', count(now.clients)],
    ['consumers', count(now.consumers.length + now.left_out)],
    ['delivered/s', rate(sum((of) => of.delivered_per_s))],
    ['slow consumers', count(now.consumers.filter(isSlow).length)],
    ['missed deadlines', count(sum((of) => of.missed) + now.departed.missed)],
    ['lost events', count(sum((of) => of.lost) + now.departed.lost)],
    ['refused', count(now.refused)],
    ['sent away', count(now.sent_away)],
    ['direct links', count(now.direct)],
  ];
  if (now.log) {
    totals.push(['log', bytes(now.log.bytes)], ['log: not synced', count(Math.max(0, now.log.next - now.log.synced))]);
  }
  document.getElementById('totals').replaceChildren(...totals.map(([name, value]) => {
    const box = element('div');
    box.append(element('dt', name), element('dd', value));
    return box;
  }));
  const consumers = [...now.consumers].sort((one, other) => other.delivered_per_s - one.delivered_per_s);
  fill('consumers', [
    ['consumer', named],
    ['class', (of) => of.class, 'minor word'],
    ['matched/s', (of) => rate(of.matched_per_s), 'minor'],
    ['delivered/s', (of) => rate(of.delivered_per_s)],
    ['waiting', (of) => count(of.waiting)],
    ['lost', (of) => count(of.lost)],
    ['missed', (of) => count(of.missed)],
    ['repeated', (of) => count(of.repeated), 'minor'],
  ], consumers, isSlow);
  const topics = new Set([...Object.keys(now.published_by_topic), ...Object.keys(now.missed_by_topic)]);
  const ofTopics = [...topics].map((name) => ({
    name,
    published: now.published_by_topic[name] || 0,
    published_per_s: now.published_per_s[name] || 0,
    missed: now.missed_by_topic[name] || 0,
  }));
  ofTopics.sort((one, other) => other.published_per_s - one.published_per_s || other.published - one.published);
  fill('topics', [
    ['topic', (of) => of.name],
    ['events/s', (of) => rate(of.published_per_s)],
    ['events', (of) => count(of.published)],
    ['missed', (of) => count(of.missed)],
  ], ofTopics);
  const delivered = {};
  for (const consumer of now.consumers) {
    delivered[consumer.class] = (delivered[consumer.class] || 0) + consumer.delivered_per_s;
  }
  fill('classes', [
    ['class', (of) => of.name],
    ['share', (of) => share(of.share)],
    ['delivered/s', (of) => rate(delivered[of.name] || 0)],
    ['on paths', (of) => count(of.messages), 'minor'],
    ['late', (of) => count(of.late)],
    ['lost', (of) => count(of.lost)],
  ], now.classes);
  fill('refusals', [['reason', ([name]) => name], ['requests', ([, times]) => count(times)]], Object.entries(now.refusals || {}));
};

const state = document.getElementById('state');
// A screen reader announces each change of this text.
const report = (text, kind) => {
  if (state.textContent !== text) state.textContent = text;
  state.className = kind;
};
const poll = async () => {
  try {
    const answer = await fetch('statistics.json', { cache: 'no-store' });
    if (!answer.ok) throw new Error((await answer.text()).trim());
    show(await answer.json());
    report('live', '');
  } catch (error) {
    report('the broker does not answer: ' + error.message, 'bad');
  }
  setTimeout(poll, INTERVAL);
};
poll();
