/**
 * The channel to a kernel: messages of a Panel component, see workbench/panels/page.py.
 *
 * Panel sends each message to all that show the component, drops what is sent while it takes in another, and what is
 * sent early may come late. So each page has a name, the messages to it are numbered, and it asks again for what it
 * missed. All are JSON texts.
 *
 * To the kernel, each with `page`: `hello` until something is heard, `here` as the answer to `here`, `missed` with the
 * number of the last that came, `request` with `id`, `verb`, `path`, `body`, `bye`, and what views/screen.py says.
 * From the kernel, each with `page` and `n`: `ready`, `here`, `answer` with `id` and `value` or `message`, `do` with what
 * Python code asks of the page, and what views/screen.py says. Without a number of their own: `heard` with that of the
 * last that was sent, and `again`: the kernel doesn't know this page, which begins anew.
 */

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

interface IWaiting {
  resolve(value: unknown): void;
  reject(error: Error): void;
}

/** Milliseconds before the kernel is greeted again that has not answered: first, and at most. */
const GREETING = [1000, 15000];
/** Milliseconds that a message may come later than one that was sent after it. */
const DISORDER = 100;

export class Messages {
  /** Called with each message that is for what is shown here. */
  onMessage: (message: IMessage) => void = () => undefined;

  constructor(private _model: IModel) {
    _model.on('msg:custom', text => this._receive(JSON.parse(text) as INumbered));
    this._greet(GREETING[0]);
  }

  /** Whether the kernel was heard. */
  get heard(): boolean {
    return this._heard;
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
    this._say(message);
  }

  /** Ask for what is at `path`; rejects with an error whose message is for the person. */
  request(verb: string, path: string, body: object = {}): Promise<unknown> {
    const id = ++this._asked;
    this._say({ type: 'request', id, verb, path, body });
    return new Promise((resolve, reject) => this._waiting.set(id, { resolve, reject }));
  }

  dispose(): void {
    window.clearTimeout(this._greeting);
    this._say({ type: 'bye' });
  }

  private _greet(pause: number): void {
    this._say({ type: 'hello' });
    this._greeting = window.setTimeout(() => this._greet(Math.min(2 * pause, GREETING[1])), pause);
  }

  private _say(message: object): void {
    this._model.send_msg(JSON.stringify({ page: this._page, ...message }));
  }

  private _receive(message: INumbered): void {
    if (message.page !== this._page) {
      return;
    }
    this._heard = true;
    window.clearTimeout(this._greeting);
    if (message.type === 'again') {
      this._begin();
    } else if (message.type === 'heard') {
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

  private _askAgain(): void {
    this._missing = 0;
    if (this._newest > this._n) {
      this._say({ type: 'missed', after: this._n });
    }
  }

  private _take(message: INumbered): void {
    if (message.type === 'here') {
      this._say({ type: 'here' });
    } else if (message.type === 'answer') {
      const waiting = this._waiting.get(message['id'] as number);
      this._waiting.delete(message['id'] as number);
      if (typeof message['message'] === 'string') {
        waiting?.reject(new Error(message['message']));
      } else {
        waiting?.resolve(message['value']);
      }
    } else if (message.type !== 'ready') {
      this.onMessage(message);
    }
  }

  /** Say all again under another name. */
  private _begin(): void {
    this._page = pageName();
    this._n = this._newest = 0;
    this._came.clear();
    this._waiting.forEach(({ reject }) => reject(new Error('The kernel has forgotten this. Try again.')));
    this._waiting.clear();
    this._say({ type: 'hello' });
    this._say({ type: 'choose', choices: this._choices });
    this._watches.forEach(watch => this._say(watch));
  }

  private _asked = 0;
  private readonly _came = new Map<number, INumbered>();
  private readonly _choices: Record<string, unknown> = {};
  private _greeting = 0;
  private _heard = false;
  private _missing = 0;
  private _n = 0;
  private _newest = 0;
  private _page = pageName();
  private readonly _waiting = new Map<number, IWaiting>();
  private readonly _watches = new Map<string, object>();
}

function pageName(): string {
  return Math.random().toString(36).slice(2);
}
