package main

import (
	"context"
	"path/filepath"
	"slices"
	"testing"

	csi "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/nodewright/nodewright/pluginmgr"
	"github.com/nodewright/nodewright/volumemgr/plugintest"
)

// registered has the endpoints of plugins that were registered.
type registered chan string

func (registered) Validate(string, string, []string) error { return nil }

func (r registered) Register(_ context.Context, _, endpoint string, _ []string) error {
	r <- endpoint
	return nil
}

func (registered) Deregister(string, string) {}

// The driver registers itself, hears of it, and serves where it has said.
func TestRegistration(t *testing.T) {
	r := newRig(t, &plugintest.MountMemory{})
	r.registry = filepath.Join(r.top, "registry")
	h := make(registered, 1)
	plugins, err := pluginmgr.New(pluginmgr.Config{Dir: r.registry, Handlers: map[string][]pluginmgr.Handler{pluginmgr.CSIPlugin: {h}}})
	must(t, err)
	must(t, r.check())
	ctx, cancel := context.WithCancel(t.Context())
	said, ended := make(chan string, 10), make(chan error, 2)
	go func() { ended <- plugins.Run(ctx) }()
	go func() { ended <- r.run(ctx, func(s string) { said <- s }) }()
	endpoint := <-h
	for s := range said {
		if s == "registered" {
			break
		}
	}
	conn, err := grpc.NewClient("unix://"+endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()))
	must(t, err)
	info := got(csi.NewIdentityClient(conn).GetPluginInfo(ctx, &csi.GetPluginInfoRequest{}))(t)
	if info.GetName() != "disk.example.com" {
		t.Errorf("%v", info)
	}
	caps := got(csi.NewNodeClient(conn).NodeGetCapabilities(ctx, &csi.NodeGetCapabilitiesRequest{}))(t).GetCapabilities()
	if !slices.ContainsFunc(caps, func(c *csi.NodeServiceCapability) bool {
		return c.GetRpc().GetType() == csi.NodeServiceCapability_RPC_VOLUME_MOUNT_GROUP
	}) {
		t.Errorf("%v", caps)
	}
	must(t, conn.Close())
	cancel()
	for range 2 {
		must(t, <-ended)
	}
}

func TestFlags(t *testing.T) {
	for name, d := range map[string]*driver{
		"name":     {name: "Not A Name", node: "n"},
		"node":     {name: "a", node: ""},
		"a path":   {name: "a", node: "../n"},
		"capacity": {name: "a", node: "n", capacity: -1},
		"limit":    {name: "a", node: "n", maxVolumes: -1},
	} {
		if err := d.check(); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if extra([]string{"x"}) == nil {
		t.Error("an argument")
	}
}
