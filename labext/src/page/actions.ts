/** What Python does for a page: a message for each action, and one with its answer; see workbench/views/screen.py. */

interface IWaiting {
  message: { type: 'action'; id: number; name: string; arguments: object };
  /** Whether it only reads, and so may be sent again over another connection. */
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

const BROKEN = 'The connection broke before the answer. See whether it was done before you try again.';

export class Actions {
  constructor(private _send: (message: object) => void) {}

  /** Number of actions without an answer. */
  get waiting(): number {
    return this._waiting.size;
  }

  /** Have Python perform an action; rejects with an error whose message is for the user. */
  perform(name: string, given: object, reads = false): Promise<unknown> {
    const id = ++this._last;
    return new Promise((resolve, reject) => {
      const message = { type: 'action' as const, id, name, arguments: given };
      this._waiting.set(id, { message, reads, sent: false, resolve, reject });
      this._sendUnsent();
    });
  }

  /** Send what waits, now that there is a connection. */
  open(): void {
    this._isOpen = true;
    this._sendUnsent();
  }

  /** Refuse what may have been done, and what wasn't sent if there is a reason; what only reads waits for `open`. */
  close(unsent?: string): void {
    this._isOpen = false;
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

  private _sendUnsent(): void {
    this._waiting.forEach(each => {
      if (this._isOpen && !each.sent) {
        each.sent = true;
        this._send(each.message);
      }
    });
  }

  private _isOpen = false;
  private _last = 0;
  private readonly _waiting = new Map<number, IWaiting>();
}
