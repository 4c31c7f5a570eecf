/** A form drawn from a JSON Schema. It only asks: the server judges, and its sentence stands beside the field. */

import type { IProblem } from '../model';
import type { FormValues, ISchema, ISchemaField } from '../tokens';
import { h } from './h';

export interface IOption {
  value: string;
  label: string;
}

interface IFormProps {
  /** Prefix that makes ids unique on the page. */
  id: string;
  schema: ISchema;
  /** Fields to show, all when absent. */
  fields?: string[];
  values: FormValues;
  problem: IProblem | null;
  /** What an empty field stands for, when it isn't the schema's default. */
  hints?: Record<string, string>;
  /** Options of fields whose schema doesn't know them. */
  options?: Record<string, IOption[]>;
  onChange: (field: string, value: unknown) => void;
}

export function Form(props: IFormProps): JSX.Element {
  const names = props.fields ?? Object.keys(props.schema.properties ?? {});
  return (
    <div className="wb-Form">
      {names.map(name => (
        <Field key={name} name={name} form={props} />
      ))}
    </div>
  );
}

function Field({ name, form }: { name: string; form: IFormProps }): JSX.Element | null {
  const raw = form.schema.properties?.[name];
  if (!raw) {
    return null;
  }
  const field = resolve(raw, form.schema);
  const id = `wb-${form.id}-${name}`;
  const problem = form.problem?.parameter === name ? form.problem.message : null;
  const required = form.schema.required?.includes(name);
  // A field that waits to be filled in is not wrong yet.
  const wrong = problem && !(required && form.values[name] === undefined);
  const about = [field.description, bounds(field)].filter(Boolean).join(' ');
  return (
    <div className={`wb-Field${wrong ? ' wb-mod-wrong' : ''}`}>
      <label htmlFor={id} title={about || undefined}>
        {field.title ?? name}
        {required && <span aria-hidden="true"> *</span>}
      </label>
      <span className="wb-Field-control">
        <Control id={id} name={name} field={field} form={form} describedBy={`${id}-about`} wrong={Boolean(wrong)} />
        {field.unit && kind(field) !== 'text' && <span className="wb-Field-unit">{field.unit}</span>}
      </span>
      <span
        id={`${id}-about`}
        data-workbench={wrong ? `field-${name}-problem` : undefined}
        className={wrong ? 'wb-Problem' : problem ? 'wb-Field-hint' : 'wb-hidden'}
        role={wrong ? 'alert' : undefined}
      >
        {problem ?? about}
      </span>
    </div>
  );
}

interface IControlProps {
  id: string;
  name: string;
  field: ISchemaField;
  form: IFormProps;
  describedBy: string;
  wrong: boolean;
}

function Control({ id, name, field, form, describedBy, wrong }: IControlProps): JSX.Element {
  const value = form.values[name];
  const shared = {
    id,
    'data-workbench': `field-${name}`,
    'aria-describedby': describedBy,
    'aria-invalid': wrong || undefined,
    title: field.description
  };
  if (kind(field) === 'boolean') {
    return (
      <input
        {...shared}
        type="checkbox"
        checked={Boolean(value ?? field.default ?? form.hints?.[name] === 'true')}
        onChange={event => form.onChange(name, event.target.checked)}
      />
    );
  }
  const options = form.options?.[name] ?? enumOptions(field);
  if (options) {
    const fallback = field.default == null ? '' : asText(field.default);
    return (
      <select
        {...shared}
        className="jp-mod-styled"
        value={value === undefined ? fallback : asText(value)}
        onChange={event => form.onChange(name, event.target.value === fallback ? undefined : event.target.value)}
      >
        {!options.some(option => option.value === fallback) && (
          <option value={fallback}>{form.hints?.[name] ?? 'automatic'}</option>
        )}
        {options.map(option => (
          <option key={option.value} value={option.value}>
            {option.label}
          </option>
        ))}
      </select>
    );
  }
  const numeric = kind(field) === 'integer' || kind(field) === 'number';
  return (
    <input
      {...shared}
      className="jp-mod-styled"
      type="text"
      inputMode={numeric ? 'decimal' : 'text'}
      spellCheck={false}
      autoComplete="off"
      placeholder={placeholder(name, field, form)}
      value={value === undefined ? '' : asText(value)}
      onChange={event => form.onChange(name, typed(event.target.value, numeric))}
      onKeyDown={event => {
        const step = { ArrowUp: 1, ArrowDown: -1 }[event.key];
        if (step && kind(field) === 'integer') {
          event.preventDefault();
          const from = Number(value ?? form.hints?.[name] ?? field.default ?? field.minimum ?? 0);
          if (Number.isFinite(from)) {
            form.onChange(name, Math.max(field.minimum ?? -Infinity, from + step));
          }
        }
      }}
    />
  );
}

/** The field with references followed and "or nothing" taken away. */
function resolve(field: ISchemaField, schema: ISchema): ISchemaField {
  const target = field.$ref ? (schema.$defs?.[field.$ref.replace('#/$defs/', '')] ?? {}) : {};
  const merged = { ...target, ...field };
  const others = merged.anyOf?.filter(each => each.type !== 'null').map(each => resolve(each, schema));
  if (!others) {
    return merged;
  }
  const { anyOf: _, ...rest } = merged;
  return others.length === 1 ? { ...others[0], ...rest } : { ...rest, anyOf: others };
}

type Kind = 'boolean' | 'integer' | 'number' | 'text';

function kind(field: ISchemaField): Kind {
  const type = Array.isArray(field.type) ? field.type.find(each => each !== 'null') : field.type;
  return type === 'boolean' || type === 'integer' || type === 'number' ? type : 'text';
}

function enumOptions(field: ISchemaField): IOption[] | null {
  return field.enum?.filter(each => each !== null).map(each => ({ value: asText(each), label: asText(each) })) ?? null;
}

function placeholder(name: string, field: ISchemaField, form: IFormProps): string {
  const hint = form.hints?.[name];
  if (hint !== undefined) {
    return hint;
  }
  if (field.default != null) {
    return asText(field.default);
  }
  return field.examples?.length ? `e.g. ${asText(field.examples[0])}` : '';
}

function bounds(field: ISchemaField): string {
  const low = field.minimum ?? field.exclusiveMinimum;
  const high = field.maximum ?? field.exclusiveMaximum;
  if (low !== undefined && high !== undefined) {
    return `From ${low} to ${high}.`;
  }
  return low !== undefined ? `At least ${low}.` : high !== undefined ? `At most ${high}.` : '';
}

/** A value as one would type it. */
export function asText(value: unknown): string {
  if (Array.isArray(value)) {
    return value.map(asText).join(', ');
  }
  return typeof value === 'object' ? JSON.stringify(value) : String(value);
}

/** What was typed: a number where one was typed into a field for numbers, else the text as it is. */
function typed(text: string, numeric: boolean): unknown {
  return numeric && /^\s*-?\d+(\.\d+)?\s*$/.test(text) && !text.includes('.0') ? Number(text) : text;
}
