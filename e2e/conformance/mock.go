package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"

	"github.com/nodewright/nodewright/internal/sampleimage"
)

// mockManifests are the manifests that the specs of mock drivers deploy, in the module of
// Kubernetes.
const mockManifests = "test/e2e/testing-manifests/storage-csi/mock/*.yaml"

// mockImages builds the images of mockManifests, whatever their versions are. They contain the
// programs of tools/csi. For two programs that are not Go modules, they contain programs of this
// directory.
func mockImages(ctx context.Context, o options, dir string, env []string, base []sampleimage.File) ([]sampleimage.Image, error) {
	names, err := manifestImages(ctx, o, mockManifests)
	if err != nil {
		return nil, err
	}
	var all []sampleimage.Image
	for _, name := range names {
		short, _, _ := strings.Cut(path.Base(name), ":")
		img := sampleimage.Image{Name: name, Env: env, Entrypoint: []string{"/" + short}}
		var program []byte
		switch short {
		case "busybox":
			img.Entrypoint, img.Cmd, img.Files = nil, []string{"/bin/sh"}, base
			all = append(all, img)
			continue
		case "hostpathplugin":
			program, err = compile(ctx, o, dir, "hostpath", "./conformance/hostpath")
		case "csi-node-driver-registrar":
			program, err = compile(ctx, o, dir, "registrar", "./conformance/registrar")
		default:
			program, err = os.ReadFile(filepath.Join(o.bin, short))
		}
		if err != nil {
			return nil, fmt.Errorf("image %s: %w", name, err)
		}
		img.Files = []sampleimage.File{{Path: "/" + short, Mode: 0o755, Data: program}, {Path: "/tmp/", Mode: 0o1777}}
		all = append(all, img)
	}
	return all, nil
}

// startSnapshots creates the custom resources of snapshots, and starts the snapshot controller.
func (m *machine) startSnapshots(ctx context.Context) error {
	list := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/kubernetes-csi/external-snapshotter/client/v8")
	list.Dir = filepath.Join(m.o.repository, "tools", "csi")
	module, err := list.Output()
	if err != nil {
		return fmt.Errorf("go list external-snapshotter/client: %w", err)
	}
	kinds, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(module)), "config", "crd", "snapshot.storage.k8s.io_*.yaml"))
	if err != nil {
		return err
	}
	for _, file := range kinds {
		if out, err := m.cp.Kubectl(ctx, "apply", "-f", file).CombinedOutput(); err != nil {
			return fmt.Errorf("kubectl apply %s: %w: %s", filepath.Base(file), err, out)
		}
	}
	return m.run("snapshot-controller", filepath.Join(m.o.bin, "snapshot-controller"), "--kubeconfig", m.kubeconfig, "--v", "4")
}
