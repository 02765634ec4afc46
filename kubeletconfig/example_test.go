package kubeletconfig_test

import (
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/kubelet/config/v1beta1"

	"github.com/nodewright/nodewright/kubeletconfig"
)

func ExampleLoad() {
	dir, err := os.MkdirTemp("", "kubelet")
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	file := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(file, []byte(`apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
staticPodPath: manifests
maxPods: 20
hairpinMode: none
`), 0o600); err != nil {
		log.Fatal(err)
	}

	flags := kubeletconfig.NewFlags()
	fs := flag.NewFlagSet("edge", flag.ContinueOnError)
	flags.Bind(fs)
	if err := fs.Parse([]string{"--config", file, "--hostname-override=Edge-1", "--eviction-hard=memory.available<5%"}); err != nil {
		log.Fatal(err)
	}
	cfg, warnings, err := kubeletconfig.Load(kubeletconfig.Options{Flags: flags})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(cfg.Hostname, cfg.MaxPods, strings.TrimPrefix(cfg.StaticPodPath, dir), cfg.SyncFrequency.Duration)
	fmt.Println(cfg.HardEviction(), cfg.ImageGC().High)
	fmt.Println(warnings)
	// Output:
	// edge-1 20 /manifests 1m0s
	// map[memory.available:5%] 85
	// [hairpinMode is not supported and has no effect]
}

func ExampleValidate() {
	err := kubeletconfig.Validate(&v1beta1.KubeletConfiguration{
		MaxPods: -1, ClusterDNS: []string{"dns"}, EvictionHard: map[string]string{"memory.available": "101%"},
	})
	fmt.Println(err)
	var m kubeletconfig.Mistake
	fmt.Println(errors.As(err, &m), m.Field)
	// Output:
	// invalid configuration: maxPods: -1: want 0 or more
	// invalid configuration: clusterDNS[0]: "dns": want an IP address
	// invalid configuration: evictionHard.memory.available: "101%": want a percentage from 0% to 100%
	// true maxPods
}

func ExampleConfig_Node() {
	cfg, _, err := kubeletconfig.Load(kubeletconfig.Options{})
	if err != nil {
		log.Fatal(err)
	}
	cfg.KubeReserved = map[string]string{"cpu": "500m", "memory": "412Mi"}
	node := cfg.Node(v1.ResourceList{v1.ResourceCPU: resource.MustParse("4"), v1.ResourceMemory: resource.MustParse("8Gi")})
	left := node.Allocatable()
	fmt.Println(left.Cpu(), left.Memory())
	// Output: 3500m 7680Mi
}
