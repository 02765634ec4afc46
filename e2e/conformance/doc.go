// Command conformance runs the NodeConformance suite of Kubernetes
// (test/e2e_node) against the agent, and prints a table of what passed, failed
// and was skipped.
//
//	make conformance                        # everything that is not serial or flaky
//	make conformance FOCUS='ConfigMap|Secrets'
//	make conformance LABELS='NodeConformance && Serial' PROCS=1
//	make conformance ARGS='-agent /tmp/agent -out /tmp/report'
//
// The suite starts its own API server, etcd and namespace controller. There is no scheduler,
// since the suite sets the node of each pod. containerd is a private one of package
// containerdtest. The logs of the suite, the agent and the services are in build/conformance,
// with report.json, which is Ginkgo's report.
//
// # What it needs
//
// It needs root, busybox-static and bash-static, but no network. The suite expects fixed ports
// (6443, 10248, 10250 and 10255), the directories /var/lib/kubelet, /var/log/pods and
// /var/log/containers, and the cgroup kubepods. On cgroup v1 each run has its own ones; see
// below. On v2 a run refuses to start if one of them exists already, and removes them at the end.
//
// # Images
//
// No images are pulled from upstream. They are built here under the names that the suite uses:
// agnhost and nonewprivs from the suite's own sources, and pause from examples/images. The image
// busybox, and those of Alpine, have the machine's busybox and bash, and the curl, nmeter and nc
// of the directory extras. The images of perl and nginx are built in the same way; that of nginx
// is busybox with a page to serve. A registry on the loopback interface serves the images to
// specs that always pull.
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
// README.md has the results of both. No snapshots are created, since no program of the cluster
// requests them from the driver.
//
// # Apart from the machine
//
// On cgroup v1 each run has its own mounts, network and cgroups, so that several can run at the
// same time: the suite's kubelet moves every process of the machine into a cgroup
// (systemCgroups), and requires that the root is a shared mount. The storage suites also run in
// their own PID namespace: their pods enter the mount namespace of process 1, which the kernel
// refuses if process 1 has capabilities that the containers lack.
//
// # What fails for the machine
//
// PrivilegedPod needs a kernel with dummy interfaces. On a machine with two CPUs, some specs run
// into their timeouts if more than ten run at a time.
package main
