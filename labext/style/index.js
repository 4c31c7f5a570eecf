import figure from './figure.raw.css';
import sidebar from './sidebar.raw.css';

for (const href of [sidebar, figure]) {
  document.head.append(Object.assign(document.createElement('link'), { rel: 'stylesheet', href }));
}
