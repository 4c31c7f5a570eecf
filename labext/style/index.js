import gpus from '../../workbench/figures/gpus.raw.css';
import own from '../../workbench/views/page.raw.css';

for (const href of [gpus, own]) {
  document.head.append(Object.assign(document.createElement('link'), { rel: 'stylesheet', href }));
}
