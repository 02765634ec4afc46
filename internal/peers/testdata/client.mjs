// A program as people write them with the JavaScript client: pods that are made, watched, read,
// entered and removed. Arguments: a kubeconfig and an image.
import assert from 'node:assert';
import { PassThrough } from 'node:stream';
import * as k8s from '@kubernetes/client-node';

const [, , config, image] = process.argv;
const kc = new k8s.KubeConfig();
kc.loadFromFile(config);
const api = kc.makeApiClient(k8s.CoreV1Api);
const namespace = 'default', labelSelector = 'app=js', path = `/api/v1/namespaces/${namespace}/pods`;
const names = ['js-0', 'js-1', 'js-2'];
const pod = (name) => ({
  metadata: { name, labels: { app: 'js' } },
  spec: { terminationGracePeriodSeconds: 1, containers: [{ name: 'c', image, command: ['sh', '-c', 'echo hello; trap exit TERM; while :; do sleep 1; done'] }] },
});

for (const name of names) await api.createNamespacedPod({ namespace, body: pod(name) });
await assert.rejects(api.createNamespacedPod({ namespace, body: pod(names[0]) }), (e) => e.code === 409);

const ready = new Set();
await new Promise((resolve, reject) => {
  new k8s.Watch(kc).watch(path, { labelSelector }, (type, p) => {
    if ((p.status?.conditions ?? []).some((c) => c.type === 'Ready' && c.status === 'True')) ready.add(p.metadata.name);
    if (ready.size === names.length) resolve();
  }, (e) => e && reject(e)).catch(reject);
});

const gone = new Set(), seen = new Set();
const informer = k8s.makeInformer(kc, path, () => api.listNamespacedPod({ namespace, labelSelector }), labelSelector);
informer.on('add', (p) => seen.add(p.metadata.name));
const ended = new Promise((resolve) => informer.on('delete', (p) => gone.add(p.metadata.name).size === names.length && resolve()));
await informer.start();
assert.deepStrictEqual([...seen].sort(), names);

assert.match(await api.readNamespacedPodLog({ name: names[0], namespace }), /hello/);

const out = new PassThrough();
let text = '';
out.on('data', (d) => (text += d));
const status = await new Promise((resolve, reject) => {
  new k8s.Exec(kc).exec(namespace, names[0], 'c', ['sh', '-c', 'echo in; exit 3'], out, process.stderr, null, false, resolve).catch(reject);
});
assert.strictEqual(status.details.causes[0].message, '3');
assert.strictEqual(text, 'in\n');

const patched = await api.patchNamespacedPod({ name: names[0], namespace, body: [{ op: 'add', path: '/metadata/labels/tier', value: 'web' }] });
assert.strictEqual(patched.metadata.labels.tier, 'web');

const map = { apiVersion: 'v1', kind: 'ConfigMap', metadata: { name: 'js', namespace }, data: { a: 'b' } };
const applied = await k8s.KubernetesObjectApi.makeApiClient(kc).patch(map, undefined, undefined, 'js', true, k8s.PatchStrategy.ServerSideApply);
assert.strictEqual(applied.data.a, 'b');
await api.deleteNamespacedConfigMap({ name: 'js', namespace });

const page = await api.listNamespacedPod({ namespace, labelSelector, limit: 2 });
const rest = await api.listNamespacedPod({ namespace, labelSelector, limit: 2, _continue: page.metadata._continue });
assert.deepStrictEqual([...page.items, ...rest.items].map((p) => p.metadata.name).sort(), names);

await api.deleteCollectionNamespacedPod({ namespace, labelSelector });
await ended;
console.log('all done');
process.exit(0);
