/**
 * What a page and Python say to each other, over any connection; workbench/views/screen.py lists the messages. Python
 * forgets a page whose connection broke, so choices and watches are sent again over the next one.
 */
export type Choices = Record<string, unknown>;

interface IWaiting {
  message: { type: 'action'; id: number; name: string; arguments: object };
  /** Whether it only reads, so that it may be sent again over another connection. */
  reads: boolean;
  sent: boolean;
  resolve(value: unknown): void;
  reject(error: Error): void;
}

/** The answer to an action. */
export interface IAnswer {
  type: 'answer';
  id: number;
  value?: unknown;
  /** Why it was refused. */
  message?: string;
}

/** Any other message of Python's. */
export interface IMessage {
  type: string;
  [key: string]: unknown;
}

const BROKEN = 'The connection broke before the answer. See whether it was done before you try again.';

export class Link {
  constructor(
    private _post: (message: object) => void,
    /** Called before an action: opens a connection at once if there is none. */
    private _wake: () => void = () => undefined
  ) {}

  /** What was chosen and typed, on all pages that have this connection. */
  readonly choices: Choices = {};
  /** Called when that has changed. */
  readonly followers = new Set<() => void>();
  isOpen = false;

  /** Choose things, where null takes a choice back. What one click or key changes travels together. */
  choose(changes: Choices): void {
    if (!Object.keys(changes).length) {
      return;
    }
    if (!Object.keys(this._unsent).length) {
      setTimeout(() => {
        this.send({ type: 'choose', choices: this._unsent });
        this._unsent = {};
      });
    }
    Object.assign(this._unsent, changes);
    Object.assign(this.choices, changes);
    Object.entries(changes).forEach(([name, value]) => value === null && delete this.choices[name]);
    this.followers.forEach(follow => follow());
  }

  /** Send `watch`, `unwatch` or `range`. */
  send(message: object): void {
    const { type, watch } = message as { type: string; watch: string };
    if (type === 'watch') {
      this._watches.set(watch, message);
    } else if (type === 'unwatch') {
      this._watches.delete(watch);
    }
    if (this.isOpen) {
      this._post(message);
    }
  }

  /** Have Python perform an action, which is never repeated; rejects with an error whose message is for the user. */
  act(name: string, given: object = {}): Promise<unknown> {
    this._wake();
    return this._perform(name, given, false);
  }

  /** Have Python perform an action that only reads; it is sent again over the next connection. */
  read<T>(name: string, given: object): Promise<T> {
    return this._perform(name, given, true) as Promise<T>;
  }

  /** Send all that Python must know of this page, now that there is a connection. */
  open(): void {
    this.isOpen = true;
    this._post({ type: 'choose', choices: this.choices });
    this._watches.forEach(watch => this._post(watch));
    this._sendActions();
  }

  /** Reject actions that may have been performed, and with a reason also those not sent; reads wait for `open`. */
  close(unsent?: string): void {
    this.isOpen = false;
    this._waiting.forEach((each, id) => {
      const why = each.sent ? BROKEN : unsent;
      if (each.reads) {
        each.sent = false;
      } else if (why) {
        this._waiting.delete(id);
        each.reject(new Error(why));
      }
    });
  }

  /** Take in an answer. */
  receive({ id, value, message }: IAnswer): void {
    const waiting = this._waiting.get(id);
    this._waiting.delete(id);
    if (message === undefined) {
      waiting?.resolve(value);
    } else {
      waiting?.reject(new Error(message));
    }
  }

  private _perform(name: string, given: object, reads: boolean): Promise<unknown> {
    const id = ++this._last;
    return new Promise((resolve, reject) => {
      const message = { type: 'action' as const, id, name, arguments: given };
      this._waiting.set(id, { message, reads, sent: false, resolve, reject });
      this._sendActions();
    });
  }

  private _sendActions(): void {
    this._waiting.forEach(each => {
      if (this.isOpen && !each.sent) {
        each.sent = true;
        this._post(each.message);
      }
    });
  }

  private _last = 0;
  private _unsent: Choices = {};
  private readonly _waiting = new Map<number, IWaiting>();
  private readonly _watches = new Map<string, object>();
}
