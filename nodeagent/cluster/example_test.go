package cluster_test

import (
	"context"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodewright/nodewright/cri/critest"
	"github.com/nodewright/nodewright/kubeapi/kubeapitest"
	"github.com/nodewright/nodewright/kubeletconfig"
	"github.com/nodewright/nodewright/nodeagent"
	"github.com/nodewright/nodewright/nodeagent/cluster"
)

// configure writes the files of a node of the cluster behind srv, and loads what
// they come to.
func configure(dir string, srv *httptest.Server) *kubeletconfig.Config {
	ca := base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw}))
	for name, content := range map[string]string{
		"kubeconfig": fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: c,
clusters: [{name: c, cluster: {server: %q, certificate-authority-data: %s}}],
users: [{name: c, user: {token: node}}], contexts: [{name: c, context: {cluster: c, user: c}}]}`, srv.URL, ca),
		"kubelet.yaml": `{apiVersion: kubelet.config.k8s.io/v1beta1, kind: KubeletConfiguration, enableServer: false, healthzPort: 0,
podLogsDir: ` + filepath.Join(dir, "logs") + `, resolvConf: "", cgroupsPerQOS: false, failCgroupV1: false, failSwapOn: false, evictionHard: {}}`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			log.Fatal(err)
		}
	}
	flags := kubeletconfig.NewFlags()
	flags.ConfigFile, flags.Kubeconfig = filepath.Join(dir, "kubelet.yaml"), filepath.Join(dir, "kubeconfig")
	flags.RootDir, flags.Hostname = filepath.Join(dir, "root"), "edge-7"
	conf, _, err := kubeletconfig.Load(kubeletconfig.Options{Flags: flags})
	if err != nil {
		log.Fatal(err)
	}
	return conf
}

// A node of a cluster: it registers itself, and runs what a scheduler gives it.
func ExampleJoin() {
	dir, err := os.MkdirTemp("", "node")
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	api := kubeapitest.New() // an API server in memory
	srv := httptest.NewTLSServer(api)
	defer srv.Close()
	defer api.Stop()
	runtime := critest.New()
	runtime.AddImage("registry.example/sensor:1")

	n, err := nodeagent.New(context.Background(), nodeagent.Options{
		Config: configure(dir, srv), Runtime: runtime, Images: runtime,
		Parts: nodeagent.StandardWithout("hostsetup"), Services: nodeagent.StandardServices(), Join: cluster.Join,
	})
	if err != nil {
		log.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- n.Run(ctx) }()

	for api.Get(&v1.Node{}, "", "edge-7") == nil {
		time.Sleep(time.Millisecond)
	}
	fmt.Println("node edge-7 is there")
	api.Create(&v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "factory", Name: "sensor"},
		Spec: v1.PodSpec{
			NodeName: "edge-7", RestartPolicy: v1.RestartPolicyAlways, DNSPolicy: v1.DNSDefault,
			Containers: []v1.Container{{Name: "c", Image: "registry.example/sensor:1", ImagePullPolicy: v1.PullIfNotPresent, Args: []string{"sleep", "forever"}}},
		},
	})
	for {
		if p, _ := api.Get(&v1.Pod{}, "factory", "sensor").(*v1.Pod); p != nil && p.Status.Phase == v1.PodRunning {
			fmt.Println(p.Namespace, p.Name, p.Status.Phase)
			break
		}
		time.Sleep(time.Millisecond)
	}
	cancel()
	fmt.Println("stopped:", <-ended)
	// Output:
	// node edge-7 is there
	// factory sensor Running
	// stopped: <nil>
}
