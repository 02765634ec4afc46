package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/nodewright/nodewright/e2e/controlplane"
)

// csiDriver is the name of the driver under test, e2e/csidriver.
const csiDriver = "disk.example.com"

// csiObjects are the objects that a cluster's administrator creates for the driver. Its verbs are
// for the driver's name, and for whether volumes are attached.
const csiObjects = `
apiVersion: storage.k8s.io/v1
kind: CSIDriver
metadata: {name: %[1]s}
spec: {attachRequired: %[2]t, podInfoOnMount: true, fsGroupPolicy: File, volumeLifecycleModes: [Persistent, Ephemeral]}
`

// csiDefinition describes the driver to the suites. Its verb is for the driver's name.
const csiDefinition = `ShortName: nodewright
StorageClass: {FromName: true}
Timeouts: {PodStart: 3m, PodDelete: 3m, PVDelete: 2m, PVDeleteSlow: 3m}
InlineVolumes: [{Attributes: {}, Shared: false, ReadOnly: false}]
DriverInfo:
  Name: %s
  SupportedFsType: {"": {}, ext4: {}}
  SupportedSizeRange: {Min: 16Mi}
  SupportedMountOption: {noatime: {}}
  TopologyKeys: [topology.%[1]s/node]
  RequiredAccessModes: [ReadWriteOnce]
  Capabilities:
    persistence: true
    block: true
    fsGroup: true
    exec: true
    multipods: true
    RWX: true
    singleNodeVolume: true
    readWriteOncePod: true
    pvcDataSource: true
    controllerExpansion: true
    nodeExpansion: true
    offlineExpansion: true
    onlineExpansion: true
    capReadOnlyMany: true
    volumeLimits: true
    topology: false
`

// startStorage starts a cluster of one node, with the driver and the programs that a driver needs
// in a cluster.
func (m *machine) startStorage(ctx context.Context) error {
	if err := m.startRuntime(ctx); err != nil {
		return err
	}
	var err error
	dir := filepath.Join(m.o.out, "controlplane")
	if err := errors.Join(os.RemoveAll(dir), os.MkdirAll(dir, 0o755)); err != nil {
		return err
	}
	if m.cp, err = controlplane.Start(ctx, controlplane.Options{Program: filepath.Join(m.o.bin, "cluster"), Dir: dir}); err != nil {
		return err
	}
	if m.kubeconfig, err = m.cp.Kubeconfig("storage", "storage", "system:masters"); err != nil {
		return err
	}
	if m.o.mock { // pods of these specs call the API server, and nobody makes services work
		if m.service, err = m.cp.Service(); err != nil {
			return err
		}
	}
	apply := m.cp.Kubectl(ctx, "apply", "-f", "-")
	apply.Stdin = strings.NewReader(fmt.Sprintf(csiObjects, csiDriver, m.o.attach))
	if out, err := apply.CombinedOutput(); err != nil {
		return fmt.Errorf("apply: %w: %s", err, out)
	}
	if err := m.startAgent(ctx); err != nil {
		return err
	}
	if m.o.mock {
		return errors.Join(m.startSnapshots(ctx), m.ready(ctx))
	}
	if err := m.startDriver(); err != nil {
		return err
	}
	return m.ready(ctx, []string{"wait", "--for=jsonpath={.spec.drivers[0].name}=" + csiDriver, "csinode/" + nodeName, "--timeout=120s"})
}

// startDriver starts the driver, csi-provisioner, csi-resizer and, if volumes are attached,
// csi-attacher.
func (m *machine) startDriver() error {
	// The driver leaves the owners of files to the agent, so that the suites test more of the
	// agent.
	args := []string{"--name", csiDriver, "--node", nodeName, "--state", m.state(), "--mount-group=false", "--max-volumes", "100"}
	if m.o.attach {
		args = append(args, "--attach")
	}
	if err := m.run("csidriver", filepath.Join(m.o.bin, "csidriver"), args...); err != nil {
		return err
	}
	socket := filepath.Join(kubeletRoot, "plugins", csiDriver, "csi.sock")
	for end := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		if _, err := os.Stat(socket); err == nil {
			break
		}
		if time.Now().After(end) {
			return fmt.Errorf("the driver has no socket: see csidriver.log in %s", m.o.out)
		}
	}
	beside := []string{"--csi-address", socket, "--kubeconfig", m.kubeconfig, "--v", "4"}
	if err := errors.Join(
		m.run("csi-provisioner", filepath.Join(m.o.bin, "csi-provisioner"), append(beside, "--default-fstype=", "--worker-threads=10")...),
		m.run("csi-resizer", filepath.Join(m.o.bin, "csi-resizer"), append(beside, "--handle-volume-inuse-error=false")...),
	); err != nil || !m.o.attach {
		return err
	}
	return m.run("csi-attacher", filepath.Join(m.o.bin, "csi-attacher"), beside...)
}

// state returns the directory with the driver's volumes.
func (m *machine) state() string { return filepath.Join(m.o.out, "csidriver") }

// ready waits until the node is ready. more has arguments of further calls of "kubectl wait".
func (m *machine) ready(ctx context.Context, more ...[]string) error {
	for _, wait := range append([][]string{
		{"wait", "--for=create", "node/" + nodeName, "--timeout=120s"},
		{"wait", "--for=condition=Ready", "node/" + nodeName, "--timeout=120s"},
	}, more...) {
		if out, err := m.cp.Kubectl(ctx, wait...).CombinedOutput(); err != nil {
			return fmt.Errorf("kubectl %s: %w: %s", strings.Join(wait, " "), err, out)
		}
	}
	return nil
}

// storageSuite returns the program of the storage suites and its arguments.
func (m *machine) storageSuite() (program string, args []string, err error) {
	definition := filepath.Join(m.o.out, "csidriver.yaml")
	if err := os.WriteFile(definition, fmt.Appendf(nil, csiDefinition, csiDriver), 0o600); err != nil {
		return "", nil, err
	}
	args, err = m.e2eFlags()
	return filepath.Join(m.o.bin, "e2e.test"), append(args, "--storage.testdriver="+definition), err
}

// e2eFlags returns the flags that all suites of test/e2e need. These suites also call kubectl.
func (m *machine) e2eFlags() ([]string, error) {
	path := filepath.Join(m.o.out, "kubectl")
	kubectl := fmt.Appendf(nil, "#!/bin/sh\nexec %s kubectl \"$@\"\n", filepath.Join(m.o.bin, "cluster"))
	if err := os.WriteFile(path, kubectl, 0o755); err != nil {
		return nil, err
	}
	return []string{"--provider=local", "--kubeconfig=" + m.kubeconfig, "--num-nodes=1", "--report-dir=" + m.o.out, "--kubectl-path=" + path}, nil
}
