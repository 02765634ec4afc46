package cni_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/nodewright/nodewright/network"
	"github.com/nodewright/nodewright/network/cni"
)

// A plugin is given to a network, which makes namespaces and keeps records. By
// itself it runs what the first valid configuration names.
func Example() {
	dir, err := os.MkdirTemp("", "cni")
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	// A machine has these in /etc/cni/net.d and /opt/cni/bin.
	script := `#!/bin/sh
case $CNI_COMMAND in
VERSION) echo '{"cniVersion":"1.0.0","supportedVersions":["1.0.0"]}' ;;
ADD) echo '{"cniVersion":"1.0.0","ips":[{"address":"10.1.2.3/24"}]}' ;;
esac
`
	if err := os.WriteFile(filepath.Join(dir, "tiny"), []byte(script), 0o700); err != nil {
		panic(err)
	}
	conf := `{"cniVersion":"1.0.0","name":"example","plugins":[{"type":"tiny"}]}`
	if err := os.WriteFile(filepath.Join(dir, "10-example.conflist"), []byte(conf), 0o600); err != nil {
		panic(err)
	}

	p, err := cni.New(cni.Config{ConfDir: dir, BinDirs: []string{dir}, CacheDir: filepath.Join(dir, "cache")})
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	a := network.Attachment{ID: "web", Ports: []network.Port{{Protocol: "tcp", HostPort: 8080, ContainerPort: 80}}}
	saved, err := p.Plan(ctx, a)
	if err != nil {
		panic(err)
	}
	r, err := p.SetUp(ctx, a, "/run/netns/web", saved, nil)
	fmt.Println(r.IPs, r.Warnings, err)
	fmt.Println(p.TearDown(ctx, a, "/run/netns/web", saved, nil))
	// Output:
	// [10.1.2.3] [host ports are not served by network "example"] <nil>
	// <nil>
}
