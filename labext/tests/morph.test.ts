import { beforeEach, expect, test } from 'vitest';

import { morph } from '../src/page/morph';

let here: HTMLElement;

function become(html: string): void {
  const next = document.createElement('template');
  next.innerHTML = html;
  morph(here, next.content);
}

beforeEach(() => {
  document.body.innerHTML = '<main></main>';
  here = document.querySelector('main')!;
});

test('what is the same stays the same element', () => {
  become('<p>one</p><p>two</p>');
  const [one, two] = here.children;
  become('<p>one</p><p class="new">three</p>');
  expect([...here.children]).toEqual([one, two]);
  expect(here.innerHTML).toBe('<p>one</p><p class="new">three</p>');
});

test('an element with an id is found wherever it has gone', () => {
  become('<ul><li id="a">a</li><li id="b">b</li></ul>');
  const a = document.getElementById('a');
  become('<ul><li id="c">c</li><li id="b">b</li><li id="a">a</li></ul>');
  expect(document.getElementById('a')).toBe(a);
  expect(here.textContent).toBe('cba');
});

test('what Python only names is left as it is, also when the list around it is a new element', () => {
  become('<ul><li id="a">long text</li></ul>');
  become('<ul><li id="b">new</li><li id="a" data-same></li></ul>');
  expect(here.textContent).toBe('newlong text');
  become('<div>between</div><ul><li id="a" data-same></li></ul>');
  expect(here.textContent).toBe('betweenlong text');
});

test('what a person unfolded stays unfolded', () => {
  become('<details><summary>Why</summary>old</details>');
  here.querySelector('details')!.open = true;
  become('<details><summary>Why</summary>new</details>');
  expect(here.querySelector('details')!.open).toBe(true);
  expect(here.textContent).toBe('Whynew');
});

test('a view within this one, and what a notice says, are not touched', () => {
  become('<div data-live="runs"></div><p data-notice="POST runs"></p>');
  here.children[0].innerHTML = '<b>made elsewhere</b>';
  here.children[1].textContent = 'It failed.';
  become('<div data-live="runs"></div><p data-notice="POST runs"></p>');
  expect(here.textContent).toBe('made elsewhereIt failed.');
});

test('what is no more goes', () => {
  become('<p>one</p><i>two</i>three');
  become('<p>one</p>');
  expect(here.innerHTML).toBe('<p>one</p>');
});

test('what is only named is not taken from another page in this document', () => {
  document.body.insertAdjacentHTML('afterbegin', '<aside><ul><li id="a">theirs</li></ul></aside>');
  become('<ul><li id="a">ours</li></ul>');
  become('<div>between</div><ul><li id="a" data-same></li></ul>');
  expect(document.querySelector('aside')!.textContent).toBe('theirs');
  expect(here.textContent).toBe('betweenours');
});

test('the field that a person is in keeps what it shows and what is selected, until it is left', () => {
  become('<input value="2">');
  const field = here.querySelector('input')!;
  field.focus();
  field.select();
  become('<input value="1">');
  expect([field.value, field.selectionStart, field.selectionEnd]).toEqual(['2', 0, 1]);
  expect(field.defaultValue).toBe('1');
});
