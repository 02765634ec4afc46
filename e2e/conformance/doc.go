// Command conformance runs the NodeConformance suite of Kubernetes
// (test/e2e_node) against the agent, and prints a table of what passed, failed
// and was skipped.
//
//	make conformance                        # everything that is not serial or flaky
//	make conformance FOCUS='ConfigMap|Secrets'
//	make conformance LABELS='NodeConformance && Serial' PROCS=1
//	make conformance ARGS='-agent /tmp/agent -out /tmp/report'
//
// The suite brings its own API server, etcd and controller of namespaces; there
// is no scheduler, the suite names the node. containerd is a private one of
// package containerdtest. What the suite, the agent and the services say is kept
// in build/conformance, with report.json, which is Ginkgo's report.
//
// # What it needs
//
// Root, busybox-static, bash-static, no network. The suite has fixed ideas of a node: the
// ports 6443, 10248, 10250 and 10255, the directories /var/lib/kubelet, /var/log/pods and
// /var/log/containers, and the cgroup kubepods. On cgroup v1 a run has these for
// itself, see below; on v2 it refuses to start when one of them is there already, and
// removes them in the end.
//
// # Images
//
// No registry is asked. The images are made here under the names that the suite
// asks for: agnhost and nonewprivs of the suite's own sources, pause of
// examples/images. Busybox, also where an image is one of Alpine's, is the
// machine's own, with bash, and the curl, nmeter and nc of extras; so are perl's
// image and nginx's, which is busybox with a page to serve. A registry on the
// loopback serves them to specs that pull always.
//
// # Storage
//
// With -storage it runs the storage suites of test/e2e instead, as an external
// driver: e2e/csidriver with a control plane of e2e/cmd/cluster, volumes made
// by csi-provisioner, made larger by csi-resizer and, with -attach, attached by csi-attacher. With
// -mock it runs the specs of mock drivers (test/e2e/storage/csimock), which deploy these
// programs in pods: images of the same programs, and hostpath and registrar in the
// place of csi-driver-host-path and node-driver-registrar, which are no Go modules that
// can be had.
//
//	make storage ARGS='-attach'                        # the agent
//	make storage ARGS='-mock'                          # mock drivers
//	make storage ARGS='-kubelet build/bin/kubelet'     # the kubelet of the same version, for comparison
//
// README.md has what came of both. No snapshots are made there: no program of the
// cluster asks the driver for them.
//
// # Apart from the machine
//
// On cgroup v1 all of it runs with mounts, network and cgroups of its own, so that several
// runs go side by side: the suite's kubelet moves every process of the
// machine into a cgroup (systemCgroups), and wants a root that is a shared mount. The
// storage suites have processes of their own as well: their pods enter the mounts of
// process 1, which the kernel refuses where that has capabilities that containers lack.
//
// # What fails for the machine
//
// PrivilegedPod needs a kernel with dummy interfaces. On a machine with two CPUs
// more than ten specs at a time take longer than some of them bear.
package main
