/**
 * The channel to a kernel: messages of a Panel component, see workbench/panels/page.py.
 *
 * Panel sends each message to all that show the component, drops what is sent while it takes in another, and what is
 * sent early comes late or never. So each page has a name, greets the kernel until it answers and says all else then; the
 * messages to it are numbered, and it asks again for what it missed. All are JSON texts.
 *
 * To the kernel, each with `page`: `hello` until `ready` arrives, `here` as the answer to `here`, `missed` with the
 * number of the last that came, `bye`, and what views/screen.py says.
 * From the kernel, each with `page` and `n`: `ready`, `here`, `do` with what Python code asks of the page, and what
 * views/screen.py says. Without a number of their own: `received` with that of the last that was sent, and `again`: the
 * kernel doesn't know this page, which begins anew.
 */
import { Actions } from './actions';
import type { IAnswer } from './actions';

/** What we use of the model that Panel hands to a component. */
export interface IModel {
  send_msg(message: string): void;
  on(event: 'msg:custom' | 'remove', callback: (message: string) => void): void;
}

export interface IMessage {
  type: string;
  [key: string]: unknown;
}

interface INumbered extends IMessage {
  page: string;
  n: number;
}

/** Milliseconds before the kernel is greeted again that has not answered: first, and at most. */
const GREETING = [1000, 15000];
/** Milliseconds that a message may come later than one that was sent after it. */
const DISORDER = 100;
/** Milliseconds without a word from the kernel after which a message says that something waits. */
const PATIENCE = 8000;

export class Messages {
  /** Called with each message that is for what is shown here. */
  onMessage: (message: IMessage) => void = () => undefined;
  /** Called when the kernel has answered the greeting. */
  onReady: () => void = () => undefined;
  /** Called with a sentence when something has waited without a word from the kernel, and without when that speaks. */
  onSilence: (sentence: string) => void = () => undefined;

  constructor(private _model: IModel) {
    _model.on('msg:custom', text => this._receive(JSON.parse(text) as INumbered));
    this._begin();
    this._reportIfSilent(() => !this._ready);
  }

  /** To the kernel. What is watched and chosen is said again by itself to a kernel that has forgotten this page. */
  send(message: object): void {
    const { type, watch, choices } = message as IMessage;
    if (type === 'watch') {
      this._watches.set(watch as string, message);
    } else if (type === 'unwatch') {
      this._watches.delete(watch as string);
    } else if (type === 'choose') {
      Object.assign(this._choices, choices);
    }
    this._sayIfReady(message);
    // All that is said is confirmed.
    this._reportIfSilent(() => this._ready);
  }

  /** Have Python perform an action, which is never repeated by itself. */
  act(name: string, given: object): Promise<unknown> {
    this._reportIfSilent(() => this._actions.waiting > 0);
    return this._actions.perform(name, given);
  }

  /** Have Python perform an action that only reads; a kernel that has forgotten this page is asked again. */
  read<T>(name: string, given: object): Promise<T> {
    this._reportIfSilent(() => this._actions.waiting > 0);
    return this._actions.perform(name, given, true) as Promise<T>;
  }

  dispose(): void {
    window.clearTimeout(this._greeting);
    this._say({ type: 'bye' });
  }

  /** Begin under a new name. */
  private _begin(): void {
    this._ready = false;
    this._actions.close();
    this._page = Math.random().toString(36).slice(2);
    this._n = this._newest = 0;
    this._came.clear();
    this._greet(GREETING[0]);
  }

  private _greet(pause: number): void {
    this._say({ type: 'hello' });
    this._greeting = window.setTimeout(() => this._greet(Math.min(2 * pause, GREETING[1])), pause);
  }

  private _sayIfReady(message: object): void {
    if (this._ready) {
      this._say(message);
    }
  }

  private _say(message: object): void {
    this._model.send_msg(JSON.stringify({ page: this._page, ...message }));
  }

  private _receive(message: INumbered): void {
    // Without a name it is for all.
    if (message.page && message.page !== this._page) {
      return;
    }
    this._received += 1;
    this._reportSilence(false);
    if (message.type === 'again') {
      this._begin();
    } else if (message.type === 'received') {
      this._newest = Math.max(this._newest, message.n);
    } else if (message.n > this._n) {
      this._newest = Math.max(this._newest, message.n);
      this._came.set(message.n, message);
      for (let next = this._came.get(this._n + 1); next; next = this._came.get(this._n + 1)) {
        this._n += 1;
        this._came.delete(this._n);
        this._take(next);
      }
    }
    if (this._newest > this._n && !this._missing) {
      this._missing = window.setTimeout(() => this._askAgain(), DISORDER);
    }
  }

  private _reportSilence(silent: boolean): void {
    // A click takes the sentence away, so that it is said again after the next.
    if (silent || this._silent) {
      this._silent = silent;
      this.onSilence(silent ? 'The kernel has not answered yet. Where it is not busy, run this cell again.' : '');
    }
  }

  /** Report silence if the kernel sends nothing for a while and something still waits for it. */
  private _reportIfSilent(waits: () => boolean): void {
    const received = this._received;
    window.setTimeout(() => this._received === received && waits() && this._reportSilence(true), PATIENCE);
  }

  private _askAgain(): void {
    this._missing = 0;
    if (this._newest > this._n) {
      this._say({ type: 'missed', after: this._n });
    }
  }

  private _take(message: INumbered): void {
    if (message.type === 'ready') {
      window.clearTimeout(this._greeting);
      this._ready = true;
      this.onReady();
      this._sayAll();
    } else if (message.type === 'here') {
      this._say({ type: 'here' });
    } else if (message.type === 'answer') {
      this._actions.receive(message as unknown as IAnswer);
    } else {
      this.onMessage(message);
    }
  }

  /** Say all that a kernel must know that knows nothing of this page. */
  private _sayAll(): void {
    this._say({ type: 'choose', choices: this._choices });
    this._watches.forEach(watch => this._say(watch));
    this._actions.open();
  }

  private readonly _actions = new Actions(message => this._say(message));
  private readonly _came = new Map<number, INumbered>();
  private readonly _choices: Record<string, unknown> = {};
  private _greeting = 0;
  private _received = 0;
  private _missing = 0;
  private _n = 0;
  private _newest = 0;
  private _page = '';
  private _ready = false;
  private _silent = false;
  private readonly _watches = new Map<string, object>();
}
