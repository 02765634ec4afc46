//go:build ecosystem

package e2e_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// extenders are the tests with programs that extend a node.
var extenders = []ecosystemTest{
	{"generic-device-plugin", []string{"generic-device-plugin"}, everywhere, genericDevicePlugin},
	{"csi-driver-host-path", []string{"csi-node-driver-registrar", "hostpathplugin"}, everywhere, csiHostPath},
	{"dra-example-driver", []string{"dra-example-kubeletplugin"}, inCluster, draExample},
}

// A device plugin offers a device of the machine. It registers again after a restart of the
// agent and after one of its own, and pods keep what they have.
func genericDevicePlugin(s *ecosystemRun) {
	s.everyNode("generic-device-plugin", fmt.Sprintf(`
      priorityClassName: system-node-critical
      containers:
      - name: generic-device-plugin
        image: %s
        args: [--device, '{"name": "fuse", "groups": [{"count": 2, "paths": [{"path": "/dev/fuse"}]}]}']
        resources: {requests: {cpu: 50m, memory: 10Mi}, limits: {cpu: 50m, memory: 20Mi}}
        ports: [{containerPort: 8080, name: http}]
        securityContext: {privileged: true}
        volumeMounts: [{name: device-plugin, mountPath: /var/lib/kubelet/device-plugins}, {name: dev, mountPath: /dev}]
      volumes:
      - {name: device-plugin, hostPath: {path: /var/lib/kubelet/device-plugins}}
      - {name: dev, hostPath: {path: /dev}}
`, s.image("generic-device-plugin")))
	offered := func() (string, error) {
		return s.try("get", "node", s.name, "-o", `jsonpath={.status.allocatable.squat\.ai/fuse}`)
	}
	s.says("the node offers the devices", offered, "2")
	user := func(name string) string {
		return strings.Replace(pod(name, "ls -l /dev/fuse; "+forever), "imagePullPolicy: Never,", "imagePullPolicy: Never, resources: {limits: {squat.ai/fuse: 1}},", 1)
	}
	s.apply(user("first"))
	s.ready("first")
	s.says("the pod has the device", func() (string, error) { return s.try("logs", "first") }, "/dev/fuse")
	if _, err := s.try("exec", "first", "--", "sh", "-c", "exec 3<>/dev/fuse"); err != nil {
		s.Error("the pod may not open its device:", err)
	}
	s.stop()
	s.start()
	s.says("the plugin has registered with the next agent", offered, "2")
	s.apply(user("second"))
	s.ready("second")
	s.ready("first")
	restarts := s.do("get", "pod", "first", "-o", "jsonpath={.status.containerStatuses[0].restartCount}")
	if restarts != "0" {
		s.Errorf("the first pod was restarted %s times", restarts)
	}
}

// hostPathDriver is the driver with the registrar beside it, as their own manifests have them
// without the sidecars that only controllers need. It wants both images.
const hostPathDriver = `
      containers:
      - name: hostpath
        image: %s
        args: ["--drivername=hostpath.csi.k8s.io", "--v=5", "--endpoint=$(CSI_ENDPOINT)", "--nodeid=$(KUBE_NODE_NAME)"]
        env: [{name: CSI_ENDPOINT, value: "unix:///csi/csi.sock"}, {name: KUBE_NODE_NAME, valueFrom: {fieldRef: {apiVersion: v1, fieldPath: spec.nodeName}}}]
        securityContext: {privileged: true}
        volumeMounts:
        - {mountPath: /csi, name: socket-dir}
        - {mountPath: /var/lib/kubelet/pods, mountPropagation: Bidirectional, name: mountpoint-dir}
        - {mountPath: /var/lib/kubelet/plugins, mountPropagation: Bidirectional, name: plugins-dir}
        - {mountPath: /csi-data-dir, name: csi-data-dir}
        - {mountPath: /dev, name: dev-dir}
      - name: node-driver-registrar
        image: %s
        args: [--v=5, --csi-address=/csi/csi.sock, --kubelet-registration-path=/var/lib/kubelet/plugins/csi-hostpath/csi.sock, "--http-endpoint=:9809"]
        env: [{name: KUBE_NODE_NAME, valueFrom: {fieldRef: {apiVersion: v1, fieldPath: spec.nodeName}}}]
        securityContext: {privileged: true}
        ports: [{containerPort: 9809, name: healthz}]
        livenessProbe: {httpGet: {path: /healthz, port: healthz}, initialDelaySeconds: 5, timeoutSeconds: 15, periodSeconds: 10}
        volumeMounts: [{mountPath: /csi, name: socket-dir}, {mountPath: /registration, name: registration-dir}, {mountPath: /csi-data-dir, name: csi-data-dir}]
      volumes:
      - {name: socket-dir, hostPath: {path: /var/lib/kubelet/plugins/csi-hostpath, type: DirectoryOrCreate}}
      - {name: mountpoint-dir, hostPath: {path: /var/lib/kubelet/pods, type: DirectoryOrCreate}}
      - {name: registration-dir, hostPath: {path: /var/lib/kubelet/plugins_registry, type: Directory}}
      - {name: plugins-dir, hostPath: {path: /var/lib/kubelet/plugins, type: Directory}}
      - {name: csi-data-dir, hostPath: {path: /var/lib/csi-hostpath-data/, type: DirectoryOrCreate}}
      - {name: dev-dir, hostPath: {path: /dev, type: Directory}}
`

// A CSI driver registers through node-driver-registrar; pods have a volume of its own each, and
// in a cluster the example for inline volumes of the driver runs.
func csiHostPath(s *ecosystemRun) {
	if s.cp != nil { // a node alone has no such kind, and takes the driver's word
		s.apply(`apiVersion: storage.k8s.io/v1
kind: CSIDriver
metadata: {name: hostpath.csi.k8s.io}
spec: {volumeLifecycleModes: [Persistent, Ephemeral], podInfoOnMount: true, attachRequired: false, fsGroupPolicy: File}
`)
		defer s.do("delete", "csidriver", "hostpath.csi.k8s.io")
	}
	s.everyNode("csi-hostpathplugin", fmt.Sprintf(hostPathDriver, s.image("hostpathplugin"), s.image("csi-node-driver-registrar")))
	if s.cp != nil {
		s.says("the driver is registered", func() (string, error) {
			return s.try("get", "csinode", s.name, "-o", "jsonpath={.spec.drivers[*].name}")
		}, "hostpath.csi.k8s.io")
	}
	s.apply(`apiVersion: v1
kind: Pod
metadata: {name: inline, labels: {app: inline}}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: my-frontend
    image: localhost/busybox:1
    imagePullPolicy: Never
    command: [sh, -c, "echo kept >/data/file; cat /data/file; grep ' /data ' /proc/mounts; sleep 1000000"]
    volumeMounts: [{mountPath: /data, name: my-csi-volume}]
  volumes:
  - {name: my-csi-volume, csi: {driver: hostpath.csi.k8s.io}}
`)
	s.ready("inline")
	s.says("the pod has written", func() (string, error) { return s.try("logs", "inline") }, "kept", " /data ")
	s.do("delete", "pod", s.podOf("csi-hostpathplugin")) // with its pod still there
	s.restored("csi-hostpathplugin", fmt.Sprintf(hostPathDriver, s.image("hostpathplugin"), s.image("csi-node-driver-registrar")))
	s.do("delete", "pod", "inline")
	s.awaits("the volume is unmounted and deleted", func() error {
		mounts, err := os.ReadFile("/proc/self/mountinfo")
		if err == nil && strings.Contains(string(mounts), "kubernetes.io~csi") {
			err = fmt.Errorf("it is mounted")
		}
		if left, _ := filepath.Glob("/var/lib/csi-hostpath-data/*-*-*"); err == nil && len(left) > 0 {
			err = fmt.Errorf("%v is left", left)
		}
		return err
	})
	_ = unix.Unmount("/var/lib/csi-hostpath-data", unix.MNT_DETACH)
}

// restored is everyNode for a pod that was deleted: a node alone needs to be told again.
func (s *ecosystemRun) restored(app, spec string) {
	s.Helper()
	if s.cp == nil {
		s.everyNode(app, spec)
	}
	s.ready(app)
}

// draObjects want: namespace.
const draObjects = `apiVersion: v1
kind: ServiceAccount
metadata: {name: dra-example-driver}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: dra-example-driver}
rules:
- {apiGroups: [resource.k8s.io], resources: [resourceclaims], verbs: [get, list, watch]}
- {apiGroups: [resource.k8s.io], resources: [resourceclaims/status], verbs: [update]}
- {apiGroups: [resource.k8s.io], resources: [resourceclaims/driver], verbs: ["associated-node:update", "associated-node:patch"], resourceNames: [gpu.example.com]}
- {apiGroups: [""], resources: [nodes], verbs: [get]}
- {apiGroups: [resource.k8s.io], resources: [resourceslices], verbs: [get, list, watch, create, update, patch, delete]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: dra-example-driver}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: dra-example-driver}
subjects: [{kind: ServiceAccount, name: dra-example-driver, namespace: %s}]
---
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: gpu.example.com}
spec: {selectors: [{cel: {expression: "device.driver == 'gpu.example.com'"}}]}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: single-gpu}
spec: {spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu.example.com}}]}}}
`

// The example driver of dynamic resource allocation publishes devices, and pods get them by
// claims of a template, shared by containers.
func draExample(s *ecosystemRun) {
	s.apply(fmt.Sprintf(draObjects, s.namespace))
	s.ok(os.MkdirAll(s.cdi(), 0o755))
	s.everyNode("dra-example-driver", fmt.Sprintf(`
      serviceAccountName: dra-example-driver
      containers:
      - name: plugin
        image: %s
        securityContext: {privileged: true}
        livenessProbe: {grpc: {port: 51515, service: liveness}, periodSeconds: 10}
        env:
        - {name: DRIVER_NAME, value: gpu.example.com}
        - {name: DEVICE_PROFILE, value: gpu}
        - {name: CDI_ROOT, value: /var/run/cdi}
        - {name: KUBELET_REGISTRAR_DIRECTORY_PATH, value: /var/lib/kubelet/plugins_registry}
        - {name: KUBELET_PLUGINS_DIRECTORY_PATH, value: /var/lib/kubelet/plugins}
        - {name: NODE_NAME, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}
        - {name: NAMESPACE, valueFrom: {fieldRef: {fieldPath: metadata.namespace}}}
        - {name: POD_UID, valueFrom: {fieldRef: {fieldPath: metadata.uid}}}
        - {name: NUM_DEVICES, value: "4"}
        - {name: HEALTHCHECK_PORT, value: "51515"}
        volumeMounts:
        - {name: plugins-registry, mountPath: /var/lib/kubelet/plugins_registry}
        - {name: plugins, mountPath: /var/lib/kubelet/plugins}
        - {name: cdi, mountPath: /var/run/cdi}
      volumes:
      - {name: plugins-registry, hostPath: {path: /var/lib/kubelet/plugins_registry}}
      - {name: plugins, hostPath: {path: /var/lib/kubelet/plugins}}
      - {name: cdi, hostPath: {path: %s}}
`, s.image("dra-example-kubeletplugin"), s.cdi()))
	s.says("the devices are published", func() (string, error) {
		return s.try("get", "resourceslices", "-o", "jsonpath={.items[*].spec.driver} {.items[*].spec.devices[*].name}")
	}, "gpu.example.com", "gpu-3")
	s.apply(`apiVersion: v1
kind: Pod
metadata: {name: computes, labels: {app: computes}}
spec:
  terminationGracePeriodSeconds: 1
  resourceClaims: [{name: gpu, resourceClaimTemplateName: single-gpu}]
  containers:
  - {name: one, image: "localhost/busybox:1", imagePullPolicy: Never, command: [sh, -c, "env; sleep 1000000"], resources: {claims: [{name: gpu}]}}
  - {name: two, image: "localhost/busybox:1", imagePullPolicy: Never, command: [sh, -c, "env; sleep 1000000"], resources: {claims: [{name: gpu}]}}
`)
	s.ready("computes")
	device := func(container string) string {
		for line := range strings.Lines(s.do("logs", "computes", "-c", container)) {
			if strings.HasPrefix(line, "GPU_DEVICE_") && strings.Contains(line, "=gpu-") {
				return strings.TrimSpace(line)
			}
		}
		return ""
	}
	if one, two := device("one"), device("two"); one == "" || one != two {
		s.Errorf("the containers have the devices %q and %q, want one for both", one, two)
	}
	s.stop()
	s.start()
	s.ready("computes")
	s.do("delete", "pod", "computes")
	s.awaits("the claim is gone, and so is its CDI specification", func() error {
		out, err := s.try("get", "resourceclaims", "-o", "name")
		if err == nil && out != "" {
			err = fmt.Errorf("there are %s", out)
		}
		if left, _ := filepath.Glob(filepath.Join(s.cdi(), "*claim*")); err == nil && len(left) > 0 {
			err = fmt.Errorf("%v is left", left)
		}
		return err
	})
	s.do("delete", "deviceclass", "gpu.example.com")
}
