/** The workbench as a page of its own, see workbench/server/alone.py: connected to the server by a WebSocket. */
import { openPage } from './browser';
import type { IHost } from './host';
import { Stream } from './stream';
import { mountPage } from './workbench';

const ROOT = 'workbench/api';
const STREAM = `${ROOT}/stream`;

/** Show the workbench in an element of a page at the root of the server. */
export function mountAlone(node: HTMLElement): void {
  const address = (path: string) => new URL(path, document.baseURI);
  const stream = new Stream({
    socket: () => {
      const { host, pathname, protocol } = address(STREAM);
      return new WebSocket(`${protocol.replace('http', 'ws')}//${host}${pathname}`);
    },
    probe: () =>
      fetch(address(STREAM)).then(
        response => response.status,
        () => 0
      )
  });
  const host: IHost = {
    link: stream.link,
    script: path => fetch(address(path)).then(response => response.text()),
    open: (path, name) => openPage(address(path).href, name),
    forgets: true
  };
  const view = mountPage(node, host, { view: 'wide', alone: true });
  stream.onMessage = message => view.receive(message);
  stream.onConnection = now =>
    view.say(now === 'down' ? 'The server of this page does not answer. Clusters and runs go on.' : '');
  stream.open();
}
