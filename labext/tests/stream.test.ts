import { afterEach, beforeEach, expect, test, vi } from 'vitest';

import { Server, Stream } from '../src/page/stream';
import type { StreamMessage } from '../src/tokens';

/** A socket whose other end is the test. */
class Socket {
  readyState = 0;
  sent: Record<string, unknown>[] = [];
  onopen = (): void => undefined;
  onclose = (): void => undefined;
  onmessage: (event: object) => void = () => undefined;

  send(text: string): void {
    this.sent.push(JSON.parse(text) as Record<string, unknown>);
  }
  open(): void {
    this.readyState = WebSocket.OPEN;
    this.onopen();
  }
  receive(message: object): void {
    this.onmessage({ data: JSON.stringify(message) });
  }
  close(): void {
    this.readyState = WebSocket.CLOSED;
    this.onclose();
  }
  of(type: string): Record<string, unknown>[] {
    return this.sent.filter(each => each['type'] === type);
  }
}

let sockets: Socket[];
let status: number;
let stream: Stream;

const settled = () => vi.advanceTimersByTimeAsync(1);
const refused = (promise: Promise<unknown>) => promise.then(String, (error: Error) => error.message);

beforeEach(() => {
  vi.useFakeTimers();
  sockets = [];
  status = 400;
  const socket = () => sockets[sockets.push(new Socket()) - 1] as unknown as WebSocket;
  stream = new Stream({ socket, probe: () => Promise.resolve(status) } as unknown as Server);
  stream.connect();
});

afterEach(() => vi.useRealTimers());

test('an action is one message with an id, and so is its answer', async () => {
  sockets[0].open();
  const answers = [stream.link.act('start', { profile: 'cpu' }), refused(stream.link.act('start', { profile: 'tpu' }))];
  const [first, second] = sockets[0].of('action');
  expect(first).toMatchObject({ name: 'start', arguments: { profile: 'cpu' } });
  sockets[0].receive({ type: 'answer', id: second['id'], message: 'There is no profile tpu.' });
  sockets[0].receive({ type: 'answer', id: first['id'], value: { a: 1 } });
  expect(await Promise.all(answers)).toEqual([{ a: 1 }, 'There is no profile tpu.']);
});

test('an action whose socket breaks is never repeated, and what only reads is', async () => {
  sockets[0].open();
  const started = refused(stream.link.act('start', {}));
  const cell = stream.link.read('cell', { cluster: 'otter' });
  sockets[0].close();
  expect(await started).toContain('See whether it was done');
  await vi.advanceTimersByTimeAsync(1000);
  sockets[1].open();
  expect(sockets[1].of('action')).toMatchObject([{ name: 'cell' }]);
  sockets[1].receive({ type: 'answer', id: sockets[1].of('action')[0]['id'], value: 'x' });
  expect(await cell).toBe('x');
});

test('a click while the server is down tries once to connect, and says that nothing was done', async () => {
  status = 0;
  sockets[0].close();
  await settled();
  expect(stream.connection).toBe('down');
  const started = refused(stream.link.act('start', {}));
  expect(sockets.length).toBe(2);
  sockets[1].close();
  expect(await started).toContain('nothing was done');
});

test('what is watched and chosen is said again after a broken connection', async () => {
  sockets[0].open();
  stream.link.send({ type: 'watch', watch: 'a', view: 'runs' });
  stream.link.send({ type: 'watch', watch: 'b', view: 'clusters' });
  stream.link.choose({ profile: 'gpu', workload: 'eofs' });
  stream.link.choose({ workload: null });
  stream.link.send({ type: 'unwatch', watch: 'b' });
  sockets[0].close();
  await vi.advanceTimersByTimeAsync(1000);
  sockets[1].open();
  expect(sockets[1].sent).toEqual([
    { type: 'choose', choices: { profile: 'gpu' } },
    { type: 'watch', watch: 'a', view: 'runs' }
  ]);
});

test('blocked sockets, a server that is down and one without our extension are told apart', async () => {
  for (const [answer, connection] of [
    [400, 'connecting'],
    [400, 'blocked'],
    [502, 'down'],
    [404, 'missing'],
    [0, 'down'],
    [400, 'connecting']
  ]) {
    status = answer as number;
    sockets.at(-1)!.close();
    await settled();
    expect(stream.connection).toBe(connection);
    await vi.advanceTimersByTimeAsync(15000);
  }
  const seen: string[] = [];
  stream.onMessage = (message: StreamMessage) => seen.push(message.type);
  sockets.at(-1)!.open();
  sockets.at(-1)!.receive({ type: 'state', clusters: [], runs: [], simulated: false });
  expect([stream.connection, seen]).toEqual(['open', ['state']]);
});

test('addresses are below the server, and pages of a Lab with a token have it', async () => {
  const opened: string[] = [];
  const asked: string[] = [];
  vi.stubGlobal('open', (address: string) => opened.push(address));
  const request = (address: string) => Promise.resolve((asked.push(address), new Response('script')));
  const server = new Server('http://host/user/t/', 'ws://host/user/t/', 'a b', request);
  server.open('workbench/api/runs/x/export?arrays=1');
  expect(opened).toEqual(['http://host/user/t/workbench/api/runs/x/export?arrays=1&token=a+b']);
  expect(await server.script('/user/t/workbench/api/scripts/bokeh.js?v=3')).toBe('script');
  expect(await server.probe()).toBe(200);
  expect(asked).toEqual([
    'http://host/user/t/workbench/api/scripts/bokeh.js?v=3',
    'http://host/user/t/workbench/api/stream'
  ]);
});
