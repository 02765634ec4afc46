package nodeagent_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/agent/local"
	"github.com/nodewright/nodewright/agent/part"
	"github.com/nodewright/nodewright/cri/critest"
	"github.com/nodewright/nodewright/kubeletconfig"
	"github.com/nodewright/nodewright/nodeagent"
)

// configure writes a KubeletConfiguration and a manifest, and loads what they come
// to. A node would have both in /etc.
func configure(dir string) *kubeletconfig.Config {
	manifests := filepath.Join(dir, "manifests")
	for name, content := range map[string]string{
		"kubelet.yaml": `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
staticPodPath: ` + manifests + `
podLogsDir: ` + filepath.Join(dir, "logs") + `
resolvConf: ""
cgroupsPerQOS: false
failCgroupV1: false
failSwapOn: false
healthzPort: 0
evictionHard: {}
`,
		"manifests/sensor.yaml": `apiVersion: v1
kind: Pod
metadata: {name: sensor, namespace: factory}
spec: {containers: [{name: c, image: "registry.example/sensor:1", args: [sleep, forever]}]}
`,
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
			log.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			log.Fatal(err)
		}
	}
	flags := kubeletconfig.NewFlags()
	flags.ConfigFile, flags.RootDir, flags.Hostname = filepath.Join(dir, "kubelet.yaml"), filepath.Join(dir, "root"), "edge-7"
	conf, _, err := kubeletconfig.Load(kubeletconfig.Options{Flags: flags})
	if err != nil {
		log.Fatal(err)
	}
	return conf
}

// until waits for a pod to run.
func until(n *nodeagent.Node, name string) *v1.Pod {
	for {
		for _, p := range n.Pods() {
			if strings.HasPrefix(p.Name, name) && p.Status.Phase == v1.PodRunning {
				return p
			}
		}
		time.Sleep(time.Millisecond)
	}
}

// A whole node of a configuration file and a directory of manifests.
func Example() {
	dir, err := os.MkdirTemp("", "node")
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	conf := configure(dir)
	runtime := critest.New() // a real one is found by itself
	runtime.AddImage("registry.example/sensor:1")

	n, err := nodeagent.New(context.Background(), nodeagent.Options{
		Config: conf, Runtime: runtime, Images: runtime,
		Parts: nodeagent.StandardWithout("hostsetup"), Services: nodeagent.StandardServices(),
	})
	if err != nil {
		log.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- n.Run(ctx) }()

	<-n.Up()
	p := until(n, "sensor")
	fmt.Println(p.Namespace, p.Name, p.Status.Phase)
	why, err := local.NewClient(filepath.Join(conf.RootDir, "agent.sock")).WhyNode(context.Background())
	fmt.Println(why.Name, err)
	cancel()
	fmt.Println("stopped:", <-ended)
	// Output:
	// factory sensor-edge-7 Running
	// edge-7 <nil>
	// stopped: <nil>
}

// A node with few parts, and one of its own. Nothing else is linked.
func Example_ownParts() {
	dir, err := os.MkdirTemp("", "node")
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	runtime := critest.New()
	runtime.AddImage("registry.example/sensor:1")

	licence := part.AdmitFunc("licence", func(pod *v1.Pod, _ []*v1.Pod) *part.Rejection {
		fmt.Println("licence for", pod.Name)
		return nil
	})
	n, err := nodeagent.New(context.Background(), nodeagent.Options{
		Config: configure(dir), Runtime: runtime, Images: runtime,
		Parts: []nodeagent.Maker{nodeagent.Stats, nodeagent.Collection, nodeagent.With(licence)}, // no Eviction
	})
	if err != nil {
		log.Fatal(err)
	}
	for _, p := range n.Parts() {
		fmt.Println("part", p.Name)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- n.Run(ctx) }()
	until(n, "sensor")
	cancel()
	fmt.Println("stopped:", <-ended)
	// Output:
	// part stats
	// part collection
	// part licence
	// licence for sensor-edge-7
	// stopped: <nil>
}
