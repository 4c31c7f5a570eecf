/** Hardware: what there is, the profiles, what a choice comes to, and Start. */
import { refreshIcon } from '@jupyterlab/ui-components';
import * as React from 'react';

import type { Model } from '../model';
import type { IPlan, IProfile } from '../tokens';
import { Form } from './form';
import type { IOption } from './form';
import { Button, Code, Fold, IconButton, Live, Note, Problem, Section } from './parts';
import type { ISectionState } from './sidebar';
import { Fragment, h } from './h';

/** Choices that are shown at once; the others are behind "More choices". */
const FIRST = ['n_workers', 'threads_per_worker', 'memory'];

export function HardwareSection({ model, section }: { model: Model; section: ISectionState }): JSX.Element {
  const { hardware } = model;
  return (
    <Section
      {...section}
      id="hardware"
      title="Hardware"
      actions={
        <IconButton
          icon={refreshIcon}
          label="Look at the hardware again"
          disabled={model.busy('hardware')}
          onClick={() => void model.refresh()}
        />
      }
    >
      <Problem problem={model.problem('hardware')} />
      {!hardware && model.busy('hardware') && <Note>Looking at this machine …</Note>}
      {hardware && (
        <>
          <Live name="hardware" />
          <Profiles model={model} profiles={hardware.profiles} />
          <Live name={`gpus:${model.profile}`} />
          <Planner model={model} />
        </>
      )}
    </Section>
  );
}

function Profiles({ model, profiles }: { model: Model; profiles: IProfile[] }): JSX.Element {
  const offered = profiles.filter(each => each.available).map(each => each.name);
  const move = (event: React.KeyboardEvent) => {
    const step = { ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1 }[event.key];
    if (step && offered.length) {
      event.preventDefault();
      const next = offered[(offered.indexOf(model.profile) + step + offered.length) % offered.length];
      void model.selectProfile(next);
      const group = event.currentTarget;
      group.querySelector<HTMLElement>(`[data-workbench="profile-${next}"]`)?.focus();
    }
  };
  return (
    <div className="wb-Profiles" role="radiogroup" aria-label="Profile" onKeyDown={move}>
      {profiles.map(profile => (
        <button
          key={profile.name}
          className="wb-Profile"
          role="radio"
          aria-checked={profile.name === model.profile}
          aria-disabled={!profile.available}
          tabIndex={profile.name === model.profile ? 0 : -1}
          data-workbench={`profile-${profile.name}`}
          onClick={() => profile.available && void model.selectProfile(profile.name)}
        >
          <span className="wb-Profile-title">{profile.title}</span>
          <span className="wb-Profile-text" title={profile.reason ?? undefined}>
            {profile.available ? profile.summary : (profile.reason ?? profile.summary)}
          </span>
        </button>
      ))}
    </div>
  );
}

function Planner({ model }: { model: Model }): JSX.Element {
  const { plan, schema } = model;
  const wrong = model.problem('plan');
  // The GPUs have boxes above.
  const names = Object.keys(schema?.properties ?? {}).filter(name => name !== 'devices');
  const first = names.filter(name => FIRST.includes(name));
  const more = names.filter(name => !FIRST.includes(name));
  const shared = schema && {
    schema,
    values: model.choices,
    problem: wrong,
    hints: plan?.hints,
    options: { python: environments(model) },
    onChange: (field: string, value: unknown) => model.choose(field, value)
  };
  const past = !wrong && (plan?.problem ?? plan?.consent);
  return (
    <div className="wb-Planner">
      <Problem problem={model.problem('profile')} />
      {shared && <Form {...shared} id="plan" fields={first} />}
      {shared && more.length > 0 && (
        <Fold label="More choices" hook="more-choices" onOpen={() => void model.loadEnvironments()}>
          {() => <Form {...shared} id="plan" fields={more} />}
        </Fold>
      )}
      {wrong && !names.includes(wrong.parameter ?? '') && <Problem problem={wrong} hook="plan-problem" />}
      {plan && !wrong && <Plan plan={plan} />}
      <div className="wb-Row wb-Start">
        <input
          className="jp-mod-styled"
          type="text"
          aria-label="Name of the cluster"
          placeholder="name (optional)"
          spellCheck={false}
          data-workbench="field-name"
          value={model.name}
          onChange={event => model.setName(event.target.value)}
          onKeyDown={event => event.key === 'Enter' && !past && void model.start()}
        />
        <Button
          kind={past ? 'warn' : 'accept'}
          label={past ? 'Start anyway' : 'Start'}
          hook="start"
          title={past ? `Start it although: ${past}` : 'Start this cluster'}
          disabled={model.busy('start') || wrong !== null || !plan}
          onClick={() => void model.start(Boolean(plan?.problem))}
        />
      </div>
      <Problem problem={model.problem('start')} hook="start-problem" />
    </div>
  );
}

function Plan({ plan }: { plan: IPlan }): JSX.Element {
  return (
    <div className="wb-Plan" aria-live="polite" data-workbench="plan">
      <p className="wb-Plan-description">{plan.description}</p>
      {plan.spec.why.map(sentence => sentence !== plan.consent && <Note key={sentence}>{sentence}</Note>)}
      {[plan.problem, plan.consent].map(
        message => message && <Problem key={message} problem={{ message, parameter: null }} hook="plan-problem" />
      )}
      <Fold label="Show code" hook="show-code">
        {() => <Code code={plan.code} hook="plan-code" />}
      </Fold>
    </div>
  );
}

function environments(model: Model): IOption[] {
  return model.environments.map(each => ({
    value: each.python,
    label: each.problems.length ? `${each.title} (not usable)` : each.title
  }));
}
