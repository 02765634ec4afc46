package cluster_test

import (
	"errors"
	"fmt"
	"io/fs"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/nodewright/nodewright/cri/critest"
	"github.com/nodewright/nodewright/kubeapi/kubeapitest"
	"github.com/nodewright/nodewright/node"
	"github.com/nodewright/nodewright/nodeagent"
	"github.com/nodewright/nodewright/nodeagent/cluster"
)

// tree is everything below a directory, with the times of its changes.
func tree(t *testing.T, dir string) string {
	t.Helper()
	var out strings.Builder
	if err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		st := info.Sys().(*syscall.Stat_t)
		fmt.Fprintln(&out, path, info.Mode(), info.Size(), st.Ino, st.Mtim, st.Ctim)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// A second node touches no file of the first one, and reports who has the
// directories: neither the cluster's credentials, the key, the memories nor the
// agent's state, even of what it would finish or repair if it were alone.
func TestASecondNodeTouchesNothing(t *testing.T) {
	api := kubeapitest.New()
	srv := httptest.NewTLSServer(api)
	defer srv.Close()
	defer api.Stop()
	for name, apart := range map[string]func(o *nodeagent.Options, own string){
		"the same root":         func(*nodeagent.Options, string) {},
		"the same certificates": func(o *nodeagent.Options, own string) { o.Config.RootDir, o.Config.PodLogsDir = own, own },
		"the same root alone":   func(o *nodeagent.Options, own string) { o.Config.PodLogsDir, o.Config.CertDir = own, own },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			o := nodeagent.Options{Config: configure(dir, srv), Parts: nodeagent.StandardWithout("hostsetup"), Services: nodeagent.StandardServices(), Join: cluster.Join}
			c := o.Config
			c.EnableServer, c.ServerTLSBootstrap = new(true), true
			for path, text := range map[string]string{
				filepath.Join(c.RootDir, "cluster", "pods", "pod-1.tmp"):           "half-written",
				filepath.Join(c.RootDir, "cluster", "tokens", "token-u-1"):         "damaged",
				filepath.Join(c.RootDir, "placement", "state"):                     "damaged",
				filepath.Join(c.RootDir, "secret.key"):                             "damaged",
				filepath.Join(c.RootDir, "agent.sock"):                             "",
				filepath.Join(c.CertDir, "kubelet-client-2020-01-01-00-00-00.pem"): "damaged",
				filepath.Join(c.PodLogsDir, "ns_name_uid", "c", "0.log"):           "of a pod that is gone",
			} {
				if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
					t.Fatal(err)
				}
			}
			// An update that a crash has cut off.
			if err := os.Symlink("kubelet-client-2020-01-01-00-00-00.pem", filepath.Join(c.CertDir, "kubelet-client-updated.pem")); err != nil {
				t.Fatal(err)
			}
			first, err := node.LockDirs(c.RootDir, c.CertDir)
			if err != nil {
				t.Fatal(err)
			}
			defer first.Release()
			before := tree(t, dir)
			apart(&o, t.TempDir())
			rt := critest.New()
			o.Runtime, o.Images = rt, rt
			n, err := nodeagent.New(t.Context(), o)
			if err == nil {
				_ = n.Close()
			}
			if !errors.Is(err, node.ErrLocked) || !strings.Contains(err.Error(), fmt.Sprintf("process %d", os.Getpid())) {
				t.Errorf("error %v", err)
			}
			if after := tree(t, dir); after != before {
				t.Errorf("it was\n%s\nand is\n%s", before, after)
			}
		})
	}
}
