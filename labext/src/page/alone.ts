/** The workbench as a page of its own, see workbench/server/standalone.py: connected to the server by a WebSocket. */
import { Server, Stream } from './stream';
import { mountPage } from './workbench';

/** Show the workbench in an element of a page at the root of the server. */
export function mountAlone(node: HTMLElement): void {
  const stream = new Stream(new Server(document.baseURI));
  const view = mountPage(node, stream.host, { view: 'wide', alone: true });
  stream.onMessage = message => view.receive(message);
  stream.onConnection = now =>
    view.say(now === 'down' ? 'The server of this page does not answer. Clusters and runs go on.' : '');
  stream.connect();
}
