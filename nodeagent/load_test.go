package nodeagent

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/zap"

	"github.com/nodewright/nodewright/cri/critest"
	"github.com/nodewright/nodewright/kubeletconfig"
	"github.com/nodewright/nodewright/node"
)

const configHead = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"

// load loads a file with the kubelet's flags over it.
func load(t *testing.T, content string, args ...string) (c *kubeletconfig.Config, warnings []string, err error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "k.yaml")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	flags := kubeletconfig.NewFlags()
	fs := flag.NewFlagSet("test", flag.ContinueOnError)
	flags.Bind(fs)
	if err := fs.Parse(args); err != nil {
		t.Fatal(err)
	}
	return kubeletconfig.Load(kubeletconfig.Options{File: path, Flags: flags})
}

// newBuilder makes parts of a configuration, on a node with nothing.
func newBuilder(t *testing.T, content string, args ...string) *Builder {
	t.Helper()
	c, _, err := load(t, configHead+"failSwapOn: false\n"+content+"\n", append([]string{"--root-dir", t.TempDir()}, args...)...)
	if err != nil {
		t.Fatal(err)
	}
	rt := critest.New()
	return &Builder{
		Config: c, Node: node.Machine{Name: "n"}, Runtime: rt, Images: rt, Facts: newFacts(), Log: zap.NewNop(), host: newHostCgroups(c, ""),
	}
}
