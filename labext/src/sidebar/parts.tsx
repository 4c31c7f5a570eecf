/** Small pieces that the sections share. */
import { Clipboard } from '@jupyterlab/apputils';
import { caretRightIcon, checkIcon, copyIcon } from '@jupyterlab/ui-components';
import type { LabIcon } from '@jupyterlab/ui-components';
import * as React from 'react';

import type { IProblem } from '../model';
import { Fragment, h } from './h';

interface IIconProps {
  icon: LabIcon;
  className?: string;
  title?: string;
}

export function Icon({ icon, ...props }: IIconProps): JSX.Element {
  return <icon.react {...props} tag="span" elementSize="normal" />;
}

interface IToggleProps {
  kind: 'Section' | 'Fold' | 'Entry';
  open: boolean;
  /** Id of what it unfolds. */
  controls?: string;
  title?: string;
  hook?: string;
  onClick: () => void;
  children: React.ReactNode;
}

/** A line with a caret that unfolds what is below it. */
export function Toggle(props: IToggleProps): JSX.Element {
  return (
    <button
      className={`wb-Toggle wb-mod-${props.kind}`}
      aria-expanded={props.open}
      aria-controls={props.controls}
      title={props.title}
      data-workbench={props.hook}
      onClick={props.onClick}
    >
      <Icon icon={caretRightIcon} />
      {props.children}
    </button>
  );
}

interface ISectionProps {
  id: string;
  title: string;
  /** A word beside the title, such as a number of clusters. */
  note?: React.ReactNode;
  open: boolean;
  onToggle: (id: string) => void;
  actions?: React.ReactNode;
  children: React.ReactNode;
}

/** A part of the sidebar that folds. */
export function Section(props: ISectionProps): JSX.Element {
  const body = `wb-section-${props.id}`;
  return (
    <section className="wb-Section" data-workbench={`section-${props.id}`}>
      <header className="wb-Section-header">
        <Toggle kind="Section" open={props.open} controls={body} onClick={() => props.onToggle(props.id)}>
          <span className="wb-Section-title">{props.title}</span>
          {props.note && <span className="wb-Section-note">{props.note}</span>}
        </Toggle>
        {props.open && props.actions}
      </header>
      {props.open && (
        <div className="wb-Section-body" id={body}>
          {props.children}
        </div>
      )}
    </section>
  );
}

interface IIconButtonProps {
  icon: LabIcon;
  label: string;
  hook?: string;
  pressed?: boolean;
  disabled?: boolean;
  onClick: () => void;
}

export function IconButton(props: IIconButtonProps): JSX.Element {
  return (
    <button
      className="wb-IconButton"
      title={props.label}
      aria-label={props.label}
      aria-pressed={props.pressed}
      data-workbench={props.hook}
      disabled={props.disabled}
      onClick={props.onClick}
    >
      <Icon icon={props.icon} />
    </button>
  );
}

interface IButtonProps {
  label: string;
  title?: string;
  hook?: string;
  /** 'accept' for what one came for, 'warn' for what one may regret. */
  kind?: 'accept' | 'warn';
  disabled?: boolean;
  onClick: () => void;
}

export function Button(props: IButtonProps): JSX.Element {
  return (
    <button
      className={`wb-Button jp-mod-styled jp-mod-${props.kind}`}
      title={props.title}
      data-workbench={props.hook}
      disabled={props.disabled}
      onClick={props.onClick}
    >
      {props.label}
    </button>
  );
}

interface IConfirmProps extends IIconButtonProps {
  /** What the second click does, in a word or two; without it one click is enough. */
  question: string | null;
}

/** A button for what can't be undone: where something would be lost it asks in its place, for a second click. */
export function ConfirmButton({ question, ...props }: IConfirmProps): JSX.Element {
  const [asking, setAsking] = React.useState(false);
  if (!asking || !question) {
    return <IconButton {...props} onClick={() => (question ? setAsking(true) : props.onClick())} />;
  }
  return (
    <button
      autoFocus
      className="wb-Button wb-mod-confirm jp-mod-styled jp-mod-warn"
      data-workbench={props.hook}
      onBlur={() => setAsking(false)}
      onMouseLeave={() => setAsking(false)}
      onClick={() => {
        setAsking(false);
        props.onClick();
      }}
    >
      {question}
    </button>
  );
}

interface IWordsProps {
  title?: string;
  children: React.ReactNode;
}

/** A paragraph that may be passed over. */
export function Note(props: IWordsProps): JSX.Element {
  return <p {...props} className="wb-Muted" />;
}

/** Words on a line that may be passed over. */
export function Faint(props: IWordsProps): JSX.Element {
  return <span {...props} className="wb-Muted" />;
}

/** A sentence in which `code` is set as code. */
export function Prose({ text }: { text: string }): JSX.Element {
  return <Fragment>{text.split('`').map((part, i) => (i % 2 ? <code key={i}>{part}</code> : part))}</Fragment>;
}

/** What went wrong, if anything did. */
export function Problem(props: { problem: IProblem | null; hook?: string }): JSX.Element | null {
  return (
    props.problem && (
      <p className="wb-Problem" role="alert" data-workbench={props.hook ?? 'problem'}>
        {props.problem.message}
      </p>
    )
  );
}

/** Code or a log to read and to copy; `atEnd` shows its last lines first. */
export function Code(props: { code: string; hook?: string; atEnd?: boolean }): JSX.Element {
  const [copied, setCopied] = React.useState(false);
  const text = React.useRef<HTMLPreElement>(null);
  React.useEffect(() => {
    if (props.atEnd) {
      text.current?.scrollTo(0, text.current.scrollHeight);
    }
  }, [props.code, props.atEnd]);
  const copy = () => {
    Clipboard.copyToSystem(props.code);
    setCopied(true);
    window.setTimeout(() => setCopied(false), 1500);
  };
  return (
    <div className="wb-Code">
      <IconButton icon={copied ? checkIcon : copyIcon} label={copied ? 'Copied' : 'Copy'} onClick={copy} />
      <pre ref={text} tabIndex={0} data-workbench={props.hook}>
        {props.code}
      </pre>
    </div>
  );
}

/** HTML that the server makes and keeps up to date, see live.ts. */
export function Live(props: { name: string }): JSX.Element {
  return h('wb-live', props);
}

interface IMeterProps {
  label: string;
  value: number;
  /** Upper end of the bar. */
  of: number;
  text: string;
  /** Memory is a level and not a progress, and being nearly full is a warning. */
  memory?: boolean;
}

/** A thin bar with its number beside it. */
export function Meter(props: IMeterProps): JSX.Element {
  const share = props.of > 0 ? Math.min(1, Math.max(0, props.value / props.of)) : 0;
  const full = props.memory && share > 0.85 ? ' wb-mod-full' : '';
  return (
    <div className="wb-Meter">
      <div
        className={`wb-Meter-bar${props.memory ? ' wb-mod-memory' : ''}${full}`}
        role={props.memory ? 'meter' : 'progressbar'}
        aria-label={props.label}
        aria-valuemin={0}
        aria-valuemax={100}
        aria-valuenow={Math.round(100 * share)}
        aria-valuetext={props.text}
      >
        <span style={{ width: `${100 * share}%` }} />
      </div>
      <span className="wb-Meter-text">{props.text}</span>
    </div>
  );
}

/** Text that folds: closed it is one line with a caret. */
export function Fold(props: {
  label: string;
  hook?: string;
  onOpen?: () => void;
  children: () => React.ReactNode;
}): JSX.Element {
  const [open, setOpen] = React.useState(false);
  const toggle = () => {
    if (!open) {
      props.onOpen?.();
    }
    setOpen(!open);
  };
  return (
    <div className="wb-Fold">
      <Toggle kind="Fold" open={open} hook={props.hook} onClick={toggle}>
        {props.label}
      </Toggle>
      {open && props.children()}
    </div>
  );
}
