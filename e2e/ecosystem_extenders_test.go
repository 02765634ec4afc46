//go:build ecosystem

package e2e_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nodewright/nodewright/cri/critest"
	"github.com/nodewright/nodewright/e2e/apart"
)

// extenders are the tests with programs that extend a node.
var extenders = []ecosystemTest{
	{"generic-device-plugin", []string{"generic-device-plugin"}, everywhere, genericDevicePlugin},
	{"csi-driver-host-path", []string{"csi-node-driver-registrar", "hostpathplugin"}, everywhere, csiHostPath},
	{"dra-example-driver", []string{"dra-example-kubeletplugin"}, inCluster, draExample},
	{"flannel", []string{"flannel", "flanneld"}, inCluster, flannel},
	{"kube-router", []string{"kube-router"}, inCluster, kubeRouter},
	{"ecr-credential-provider", []string{"ecr-credential-provider"}, everywhere, ecrCredentialProvider},
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

// flannelObjects are those of flannel's own manifest, without masquerading. They want: namespace.
const flannelObjects = `apiVersion: v1
kind: ServiceAccount
metadata: {name: flannel}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: flannel}
rules:
- {apiGroups: [""], resources: [pods], verbs: [get]}
- {apiGroups: [""], resources: [nodes], verbs: [get, list, watch]}
- {apiGroups: [""], resources: [nodes/status], verbs: [patch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: flannel}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: flannel}
subjects: [{kind: ServiceAccount, name: flannel, namespace: %s}]
---
apiVersion: v1
kind: ConfigMap
metadata: {name: kube-flannel-cfg}
data:
  cni-conf.json: |
    {"name": "cbr0", "cniVersion": "0.3.1", "plugins": [{"type": "flannel", "delegate": {"hairpinMode": true, "isDefaultGateway": true, "ipMasq": false}}]}
  net-conf.json: |
    {"Network": "10.244.0.0/16", "Backend": {"Type": "vxlan"}}
`

// flannel's daemon, a pod on the machine's network, gives the node its network: the node is not
// ready before. Pods reach each other, and their addresses are free when they have gone.
func flannel(s *ecosystemRun) {
	conf := s.withoutNetwork("10-flannel.conflist", "cni0")
	s.Cleanup(func() { _ = os.RemoveAll("/run/flannel") })
	s.apply(fmt.Sprintf(flannelObjects, s.namespace))
	s.everyNode("flannel", fmt.Sprintf(`
      hostNetwork: true
      priorityClassName: system-node-critical
      tolerations: [{operator: Exists, effect: NoSchedule}]
      serviceAccountName: flannel
      initContainers:
      - {name: install-cni-plugin, image: %s, command: [/bin/busybox, cp], args: [-f, /bin/flannel, /opt/cni/bin/flannel], volumeMounts: [{name: cni-plugin, mountPath: /opt/cni/bin}]}
      - name: install-cni
        image: %[2]s
        command: [/bin/busybox, cp]
        args: [-f, /etc/kube-flannel/cni-conf.json, /etc/cni/net.d/10-flannel.conflist]
        volumeMounts: [{name: cni, mountPath: /etc/cni/net.d}, {name: flannel-cfg, mountPath: /etc/kube-flannel/}]
      containers:
      - name: kube-flannel
        image: %[2]s
        args: [--kube-subnet-mgr, --iptables-forward-rules=false]
        resources: {requests: {cpu: 100m, memory: 50Mi}}
        securityContext: {privileged: false, capabilities: {add: [NET_ADMIN, NET_RAW]}}
        env:
        - {name: POD_NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
        - {name: POD_NAMESPACE, valueFrom: {fieldRef: {fieldPath: metadata.namespace}}}
        - {name: EVENT_QUEUE_DEPTH, value: "5000"}
        - {name: CONT_WHEN_CACHE_NOT_READY, value: "false"}
        volumeMounts: [{name: run, mountPath: /run/flannel}, {name: flannel-cfg, mountPath: /etc/kube-flannel/}]
      volumes:
      - {name: run, hostPath: {path: /run/flannel}}
      - {name: cni-plugin, hostPath: {path: /opt/cni/bin}}
      - {name: cni, hostPath: {path: %[3]s}}
      - {name: flannel-cfg, configMap: {name: kube-flannel-cfg}}
`, s.image("flannel"), s.image("flanneld"), conf))
	s.isReady()
	s.says("the daemon's condition stays", func() (string, error) {
		return s.try("get", "node", s.name, "-o", `jsonpath={range .status.conditions[*]}{.type}={.status}/{.reason} {end}`)
	}, "NetworkUnavailable=False/FlannelIsUp", "Ready=True")
	s.apply(pod("serves", "echo served >/tmp/index.html; exec httpd -f -p 8080 -h /tmp"))
	s.apply(pod("asks", forever))
	s.ready("serves")
	s.ready("asks")
	address := s.do("get", "pod", "serves", "-o", "jsonpath={.status.podIP}")
	if !strings.HasPrefix(address, "10.244.3.") {
		s.Errorf("the pod's address is %s", address)
	}
	s.says("a pod reaches another", func() (string, error) {
		return s.try("exec", "asks", "--", "wget", "-q", "-O", "-", "http://"+address+":8080/")
	}, "served")
	s.stop()
	s.start()
	s.do("delete", "pod", "serves", "asks")
	for _, pattern := range []string{"/var/lib/cni/flannel/*", "/var/lib/cni/networks/cbr0/10.*"} {
		if left, err := filepath.Glob(pattern); err != nil || len(left) > 0 {
			s.Errorf("%s: %v %v", pattern, left, err)
		}
	}
}

// kubeRouterObjects are those of kube-router's own manifest. They want: namespace.
const kubeRouterObjects = `apiVersion: v1
kind: ServiceAccount
metadata: {name: kube-router}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: kube-router}
rules:
- {apiGroups: [""], resources: [namespaces, pods, services, nodes, endpoints], verbs: [list, get, watch]}
- {apiGroups: [networking.k8s.io, extensions], resources: [networkpolicies], verbs: [list, get, watch]}
- {apiGroups: [coordination.k8s.io], resources: [leases], verbs: [get, create, update]}
- {apiGroups: [""], resources: [services/status], verbs: [update]}
- {apiGroups: [discovery.k8s.io], resources: [endpointslices], verbs: [get, list, watch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: kube-router}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: kube-router}
subjects: [{kind: ServiceAccount, name: kube-router, namespace: %s}]
---
apiVersion: v1
kind: ConfigMap
metadata: {name: kube-router-cfg}
data:
  cni-conf.json: |
    {"cniVersion": "0.3.0", "name": "mynet", "plugins": [{"name": "kubernetes", "type": "bridge", "bridge": "kube-bridge", "isDefaultGateway": true, "ipam": {"type": "host-local"}}]}
`

// kube-router gives the node its network and enforces policies: no pod reaches another that has a
// policy, until a policy permits it, and the node's probes reach it all the time.
func kubeRouter(s *ecosystemRun) {
	conf := s.withoutNetwork("10-kuberouter.conflist", "kube-bridge")
	s.apply(fmt.Sprintf(kubeRouterObjects, s.namespace))
	plugins, err := filepath.Glob("/usr/lib/*/xtables/*.so")
	s.ok(err)
	image := s.image("kube-router", append(plugins, "iptables", "iptables-save", "iptables-restore", "ip6tables", "ip6tables-save", "ip6tables-restore", "ipset", "ip")...)
	s.everyNode("kube-router", fmt.Sprintf(`
      hostNetwork: true
      hostPID: true
      priorityClassName: system-node-critical
      tolerations: [{operator: Exists, effect: NoSchedule}, {key: CriticalAddonsOnly, operator: Exists}, {operator: Exists, effect: NoExecute}]
      serviceAccountName: kube-router
      initContainers:
      - name: install-cni
        image: %s
        command: [/bin/busybox, cp, /etc/kube-router/cni-conf.json, /etc/cni/net.d/10-kuberouter.conflist]
        volumeMounts: [{name: cni-conf-dir, mountPath: /etc/cni/net.d}, {name: kube-router-cfg, mountPath: /etc/kube-router}]
      containers:
      - name: kube-router
        image: %[1]s
        args: [--run-router=true, --run-firewall=true, --run-service-proxy=false, --bgp-graceful-restart=true]
        env:
        - {name: NODE_NAME, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}
        - {name: POD_NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
        - {name: KUBE_ROUTER_CNI_CONF_FILE, value: /etc/cni/net.d/10-kuberouter.conflist}
        livenessProbe: {httpGet: {path: /healthz, port: 20244}, initialDelaySeconds: 10, periodSeconds: 3}
        resources: {requests: {cpu: 250m, memory: 250Mi}}
        securityContext: {privileged: true}
        volumeMounts: [{name: cni-conf-dir, mountPath: /etc/cni/net.d}, {name: xtables-lock, mountPath: /run/xtables.lock}]
      volumes:
      - {name: cni-conf-dir, hostPath: {path: %s}}
      - {name: kube-router-cfg, configMap: {name: kube-router-cfg}}
      - {name: xtables-lock, hostPath: {path: /run/xtables.lock, type: FileOrCreate}}
`, image, conf))
	s.isReady()
	probed := "imagePullPolicy: Never, readinessProbe: {httpGet: {port: 8080}, periodSeconds: 1, failureThreshold: 1},"
	s.apply(strings.Replace(pod("serves", "echo served >/tmp/index.html; exec httpd -f -p 8080 -h /tmp"), "imagePullPolicy: Never,", probed, 1))
	s.apply(pod("asks", forever))
	s.ready("serves")
	s.ready("asks")
	address := s.do("get", "pod", "serves", "-o", "jsonpath={.status.podIP}")
	reach := func() (string, error) {
		return s.try("exec", "asks", "--", "sh", "-c", "/bin/busybox timeout 2 wget -q -O - http://"+address+":8080/ 2>/dev/null || echo not reached")
	}
	s.says("a pod reaches another", reach, "served")
	s.apply(`apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: none}
spec: {podSelector: {matchLabels: {app: serves}}, policyTypes: [Ingress]}
`)
	s.says("the policy keeps it away", reach, "not reached")
	if out := s.do("get", "pod", "serves", "-o", `jsonpath={.status.conditions[?(@.type=="Ready")].status}`); out != "True" {
		s.Errorf("the pod that only the node may reach has Ready=%s", out)
	}
	s.apply(`apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: asks}
spec: {podSelector: {matchLabels: {app: serves}}, ingress: [{from: [{podSelector: {matchLabels: {app: asks}}}]}]}
`)
	s.says("the other policy permits it", reach, "served")
	s.do("delete", "pod", "serves", "asks")
	if left, err := filepath.Glob("/var/lib/cni/networks/mynet/10.*"); err != nil || len(left) > 0 {
		s.Errorf("addresses of pods are left: %v %v", left, err)
	}
	s.do("exec", s.podOf("kube-router"), "--", "kube-router", "--cleanup-config")
}

// withoutNetwork takes the node's network of pods away until the end of the test, and returns the
// directory for a CNI configuration; list and bridge are those of the network that comes. The node
// has a range of addresses, and the plugins that others delegate to.
func (s *ecosystemRun) withoutNetwork(list, bridge string) (conf string) {
	s.Helper()
	s.do("patch", "node", s.name, "-p", `{"spec": {"podCIDR": "10.244.3.0/24", "podCIDRs": ["10.244.3.0/24"]}}`) // by a controller elsewhere
	s.ok(os.MkdirAll("/opt/cni/bin", 0o755))
	for _, name := range []string{"bridge", "host-local", "loopback"} {
		data, err := os.ReadFile(program(s.T, name))
		s.ok(errors.Join(err, os.WriteFile(filepath.Join("/opt/cni/bin", name), data, 0o755)))
	}
	if conf = "/etc/cni/net.d"; s.cri == nil {
		flags := slices.Clone(s.flags)
		flags[slices.Index(flags, "bridge")] = "cni"
		s.restart(flags)
	}
	own, off := "", ""
	if s.cri != nil {
		conf = filepath.Join(filepath.Dir(s.cri.Socket), "net.d")
		own, off = filepath.Join(conf, "10-nodewright.conflist"), filepath.Join(conf, "off")
		s.ok(os.Rename(own, off))
	}
	s.Cleanup(func() {
		out, err := s.ecosystemNode.kubectl(context.Background(), "-n", s.namespace, "delete", "daemonsets,pods", "--all").CombinedOutput()
		if s.cri != nil {
			err = errors.Join(err, os.Rename(off, own))
		}
		if err = errors.Join(err, os.Remove(filepath.Join(conf, list)), exec.Command("ip", "link", "delete", bridge).Run()); err != nil {
			s.Errorf("%v: %s", err, out)
		}
	})
	return conf
}

// serve serves an address until the end of the test.
func (s *ecosystemRun) serve(address string, h http.HandlerFunc) {
	s.Helper()
	l, err := net.Listen("tcp", address)
	s.ok(err)
	server := &http.Server{Handler: h, ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(l) }()
	s.Cleanup(func() { _ = server.Close() })
}

// The credential provider of AWS gets a password from a stand-in for AWS's API, and the registry
// gives the image for this password only.
func ecrCredentialProvider(s *ecosystemRun) {
	const host, password, api = "123456789012.dkr.ecr.eu-west-1.amazonaws.com", "said-by-the-stand-in", apart.Address + ":8099"
	archive := filepath.Join(s.dir, "image.tar")
	s.archive(archive, busyboxImage(s.T))
	registry := critest.NewRegistry(s.T, archive)
	registry.Offer("shop:1")
	s.serve(apart.Address+":80", func(w http.ResponseWriter, req *http.Request) {
		if user, word, _ := req.BasicAuth(); user != "AWS" || word != password {
			w.Header().Set("WWW-Authenticate", `Basic realm="ecr"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		registry.ServeHTTP(w, req)
	})
	var asked atomic.Int32
	s.serve(api, func(w http.ResponseWriter, req *http.Request) {
		asked.Add(1)
		if target, signed := req.Header.Get("X-Amz-Target"), req.Header.Get("Authorization"); target != "AmazonEC2ContainerRegistry_V20150921.GetAuthorizationToken" || !strings.Contains(signed, "Credential=KEY/") {
			http.Error(w, target+" "+signed, http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "application/x-amz-json-1.1")
		_, _ = fmt.Fprintf(w, `{"authorizationData": [{"authorizationToken": %q, "expiresAt": %d}]}`,
			base64.StdEncoding.EncodeToString([]byte("AWS:"+password)), time.Now().Add(time.Hour).Unix())
	})
	hosts, err := os.OpenFile("/etc/hosts", os.O_APPEND|os.O_WRONLY, 0)
	s.ok(err)
	_, err = fmt.Fprintln(hosts, apart.Address, host)
	s.ok(errors.Join(err, hosts.Close()))
	certs := filepath.Join(s.dir, "certs.d")
	flags := append(slices.Clone(s.flags), "--image-credential-provider-config", filepath.Join(s.dir, "providers.yaml"),
		"--image-credential-provider-bin-dir", filepath.Dir(have(s.T, "ecr-credential-provider")))
	if s.cri != nil {
		certs = filepath.Join(filepath.Dir(s.cri.Socket), "certs.d")
	} else {
		flags = append(flags, "--registry-hosts", certs)
	}
	s.ok(os.MkdirAll(filepath.Join(certs, host), 0o755))
	s.ok(os.WriteFile(filepath.Join(certs, host, "hosts.toml"), []byte("server = \"http://"+host+"\"\n"), 0o600))
	s.files(map[string]string{"providers.yaml": `apiVersion: kubelet.config.k8s.io/v1
kind: CredentialProviderConfig
providers:
- name: ecr-credential-provider
  matchImages: ["*.dkr.ecr.*.amazonaws.com"]
  defaultCacheDuration: 12h
  apiVersion: credentialprovider.kubelet.k8s.io/v1
  args: [get-credentials]
  env: [{name: AWS_ENDPOINT_URL, value: "http://` + api + `"}, {name: AWS_ACCESS_KEY_ID, value: KEY}, {name: AWS_SECRET_ACCESS_KEY, value: secret}]
`})
	s.restart(flags)
	s.isReady()
	for _, name := range []string{"first", "second"} {
		text := strings.Replace(pod(name, forever), "localhost/busybox:1", host+"/shop:1", 1)
		s.apply(strings.Replace(text, "imagePullPolicy: Never", "imagePullPolicy: Always", 1))
		s.ready(name)
	}
	if n := asked.Load(); n != 1 {
		s.Errorf("AWS was asked %d times for two pulls, want 1: the answer is good for an hour", n)
	}
}
