/**
 * The connection to a kernel: messages of a Jupyter widget, see workbench/panels/widget.py.
 *
 * They come in order, to all places that show the widget. So each place has a name: `hello` opens its connection, which
 * `ready` confirms, `here` is the answer to `here`, and `bye` ends it. The kernel says `again` to a place that it has
 * forgotten. It confirms a choice or an action at once with `received`. All else is listed in workbench/views/screen.py.
 */
import { Link } from './link';
import type { IAnswer, IMessage } from './link';

/** What we use of the model that anywidget hands to a view. */
export interface IModel {
  get(name: string): unknown;
  send(message: string): void;
  on(event: 'msg:custom', callback: (message: string) => void): void;
  off(event: 'msg:custom', callback: (message: string) => void): void;
}

/** Milliseconds before the kernel is greeted again that has not answered: first, and at most. */
const GREETING = [1000, 15000];
/** Messages that the kernel answers at once. */
const ANSWERED = new Set(['hello', 'choose', 'action']);
/** Milliseconds without a message of the kernel after which the user learns that something waits. */
const PATIENCE = 8000;

export class Kernel {
  /** Called with each message that is for what is shown here. */
  onMessage: (message: IMessage) => void = () => undefined;
  /** Called when the kernel has answered the greeting. */
  onReady: () => void = () => undefined;
  /** Called with a message when something has waited for the kernel, and with '' when the kernel answers. */
  onSilence: (message: string) => void = () => undefined;

  constructor(private _model: IModel) {
    _model.on('msg:custom', this._receive);
    this._greet(GREETING[0]);
  }

  dispose(): void {
    window.clearTimeout(this._greeting);
    this._model.off('msg:custom', this._receive);
    this._post({ type: 'bye' });
  }

  /** Greet until the kernel answers: while it computes, what is sent before JupyterLab has a subshell for it waits. */
  private _greet(pause: number): void {
    window.clearTimeout(this._greeting);
    this._post({ type: 'hello' });
    this._greeting = window.setTimeout(() => this._greet(Math.min(2 * pause, GREETING[1])), pause);
  }

  private _post(message: { type?: string }): void {
    try {
      this._model.send(JSON.stringify({ page: this._page, ...message }));
    } catch {
      // The comm has ended with its kernel, which the user knows.
      return;
    }
    if (ANSWERED.has(message.type ?? '')) {
      const received = this._received;
      window.setTimeout(() => received === this._received && this._report(true), PATIENCE);
    }
  }

  private readonly _receive = (text: string): void => {
    const { page, ...message } = JSON.parse(text) as IMessage;
    if (page !== this._page) {
      return;
    }
    this._received += 1;
    this._report(false);
    if (message.type === 'again') {
      this.link.close();
      this._greet(GREETING[0]);
    } else if (message.type === 'ready') {
      window.clearTimeout(this._greeting);
      if (!this.link.isOpen) {
        this.onReady();
        this.link.open();
      }
    } else if (message.type === 'here') {
      this._post(message);
    } else if (message.type === 'answer') {
      this.link.receive(message as unknown as IAnswer);
    } else {
      this.onMessage(message);
    }
  };

  private _report(isSilent: boolean): void {
    if (isSilent || this._isSilent) {
      this._isSilent = isSilent;
      this.onSilence(isSilent ? 'The kernel has not answered yet. Where it is not busy, run this cell again.' : '');
    }
  }

  readonly link = new Link(message => this._post(message));
  private _greeting = 0;
  private _isSilent = false;
  private readonly _page = Math.random().toString(36).slice(2);
  private _received = 0;
}
