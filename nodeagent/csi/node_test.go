package csi_test

import (
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodewright/nodewright/cri/critest"
	"github.com/nodewright/nodewright/internal/csitest"
	"github.com/nodewright/nodewright/internal/testrun"
	"github.com/nodewright/nodewright/kubeapi"
	"github.com/nodewright/nodewright/kubeapi/kubeapitest"
	"github.com/nodewright/nodewright/kubeletconfig"
	"github.com/nodewright/nodewright/nodeagent"
	"github.com/nodewright/nodewright/nodeagent/cluster"
	"github.com/nodewright/nodewright/nodeagent/csi"
)

const driverName = "disk.example.com"

// machine is one with a driver beside the agent.
type machine struct {
	*testing.T
	dir, root string
	driver    *csitest.Driver
	runtime   *critest.Runtime
	node      *nodeagent.Node
}

func newMachine(t *testing.T, capabilities ...spec.NodeServiceCapability_RPC_Type) *machine {
	t.Helper()
	dir, err := os.MkdirTemp("", "nwcsi") // paths of sockets are short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	m := &machine{T: t, dir: dir, root: filepath.Join(dir, "root"), runtime: critest.New()}
	m.runtime.AddImage("registry.example/sensor:1")
	if m.driver, err = csitest.Start(csitest.Config{
		Socket: filepath.Join(dir, "csi.sock"), Capabilities: capabilities, Topology: map[string]string{"topology.example.com/rack": "r7"},
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.driver.Stop)
	return m
}

// announce has the agent find the driver.
func (m *machine) announce() {
	m.Helper()
	plugins := filepath.Join(m.root, "plugins_registry")
	if err := os.MkdirAll(plugins, 0o755); err != nil {
		m.Fatal(err)
	}
	stop, err := m.driver.Announce(filepath.Join(plugins, "d.sock"), driverName, []string{"1.0.0"}, nil)
	if err != nil {
		m.Fatal(err)
	}
	m.Cleanup(stop)
}

func (m *machine) write(name, content string) {
	m.Helper()
	if err := os.MkdirAll(filepath.Dir(filepath.Join(m.dir, name)), 0o755); err != nil {
		m.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(m.dir, name), []byte(content), 0o600); err != nil {
		m.Fatal(err)
	}
}

// run runs the node until the test ends.
func (m *machine) run(flags *kubeletconfig.Flags, join func(*nodeagent.Builder) (*nodeagent.Cluster, error)) {
	m.Helper()
	m.write("kubelet.yaml", `{apiVersion: kubelet.config.k8s.io/v1beta1, kind: KubeletConfiguration, enableServer: false, healthzPort: 0,
podLogsDir: `+filepath.Join(m.dir, "logs")+`, staticPodPath: `+filepath.Join(m.dir, "manifests")+`, resolvConf: "", cgroupsPerQOS: false, failCgroupV1: false, failSwapOn: false, evictionHard: {}}`)
	flags.ConfigFile, flags.RootDir, flags.Hostname = filepath.Join(m.dir, "kubelet.yaml"), m.root, "edge-7"
	conf, _, err := kubeletconfig.Load(kubeletconfig.Options{Flags: flags})
	if err != nil {
		m.Fatal(err)
	}
	m.node, err = nodeagent.New(m.Context(), nodeagent.Options{
		Config: conf, Runtime: m.runtime, Images: m.runtime, Join: join,
		Parts: append([]nodeagent.Maker{csi.Volumes}, nodeagent.StandardWithout("hostsetup")...),
	})
	if err != nil {
		m.Fatal(err)
	}
	testrun.Start(m, m.node.Run)
}

// why is what the first pod waits for.
func (m *machine) why() string {
	for _, p := range m.node.Pods() {
		return m.node.Why(p).WaitingFor
	}
	return ""
}

func (m *machine) until(what string, is func() bool) {
	m.Helper()
	for at := time.Now(); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Since(at) > 2*time.Minute {
			m.Fatalf("not within two minutes: %s; calls %v", what, m.driver.Calls())
		}
	}
}

// A node that stands alone has the volumes, claims and Secrets of its manifests; what
// waits for a driver says so, and goes on when that comes.
func TestManifestsHaveVolumesOfDrivers(t *testing.T) {
	m := newMachine(t, csitest.Stage)
	manifest := `
{apiVersion: v1, kind: Secret, metadata: {name: key, namespace: vault}, stringData: {password: hunter22}}
---
{apiVersion: v1, kind: PersistentVolume, metadata: {name: pv}, spec: {capacity: {storage: 1Gi}, accessModes: [ReadWriteOnce], claimRef: {namespace: default, name: data},
  csi: {driver: disk.example.com, volumeHandle: h1, nodeStageSecretRef: {namespace: vault, name: key}}}}
---
{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: data}, spec: {volumeName: pv, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}
---
{apiVersion: v1, kind: Pod, metadata: {name: sensor}, spec: {containers: [{name: c, image: "registry.example/sensor:1", imagePullPolicy: IfNotPresent, args: [sleep, forever],
  volumeMounts: [{name: data, mountPath: /data}, {name: scratch, mountPath: /scratch}]}],
  volumes: [{name: data, persistentVolumeClaim: {claimName: data}}, {name: scratch, csi: {driver: disk.example.com, volumeAttributes: {a: b}}}]}}
`
	m.write("manifests/sensor.yaml", manifest)
	flags := kubeletconfig.NewFlags()
	m.run(flags, nil)
	m.until("the pod says whom it waits for", func() bool {
		return strings.Contains(m.why(), "waits for driver disk.example.com to register")
	})
	m.announce()
	m.until("both volumes are published", func() bool { return len(m.driver.Published()) == 2 })
	m.until("the container runs", func() bool { return len(m.runtime.Calls("StartContainer")) == 1 })
	i := slices.IndexFunc(m.driver.Calls(), func(c csitest.Call) bool { return c.Method == "NodeStageVolume" })
	if r := m.driver.Calls()[i].Request.(*spec.NodeStageVolumeRequest); r.GetSecrets()["password"] != "hunter22" {
		t.Errorf("stage has %v", r)
	}
	if err := os.Remove(filepath.Join(m.dir, "manifests/sensor.yaml")); err != nil {
		t.Fatal(err)
	}
	m.until("nothing is left", func() bool { return len(m.driver.Published())+len(m.driver.Staged()) == 0 })
	if v := m.driver.Violations(); len(v) > 0 {
		t.Error(v)
	}
}

// In a cluster the node shows the driver, is ready when it does, and waits for the
// attachment of a volume that it has said it will use.
func TestAClustersVolumesAreAttachedFirst(t *testing.T) {
	m := newMachine(t, csitest.Stage)
	api := kubeapitest.New()
	srv := httptest.NewTLSServer(api)
	defer srv.Close()
	defer api.Stop()
	ca := base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw}))
	m.write("kubeconfig", fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: c,
clusters: [{name: c, cluster: {server: %q, certificate-authority-data: %s}}],
users: [{name: c, user: {token: node}}], contexts: [{name: c, context: {cluster: c, user: c}}]}`, srv.URL, ca))
	flags := kubeletconfig.NewFlags()
	flags.Kubeconfig = filepath.Join(m.dir, "kubeconfig")
	m.run(flags, cluster.Join)
	m.announce()
	m.until("CSINode shows the driver", func() bool {
		o, _ := api.Get(&storagev1.CSINode{}, "", "edge-7").(*storagev1.CSINode)
		return o != nil && len(o.Spec.Drivers) == 1 && o.Spec.Drivers[0].NodeID == "node-1"
	})
	m.until("the node is ready for controllers to attach", func() bool {
		n, _ := api.Get(&v1.Node{}, "", "edge-7").(*v1.Node)
		return n != nil && n.Annotations["csi.volume.kubernetes.io/nodeid"] != "" && n.Annotations["volumes.kubernetes.io/controller-managed-attach-detach"] == "true"
	})

	pv := &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}, Status: v1.PersistentVolumeStatus{Phase: v1.VolumeBound}}
	pv.Spec.CSI = &v1.CSIPersistentVolumeSource{Driver: driverName, VolumeHandle: "h1", NodePublishSecretRef: &v1.SecretReference{Namespace: "vault", Name: "key"}}
	// The label is the driver's: nobody but the API server has it.
	pv.Spec.NodeAffinity = &v1.VolumeNodeAffinity{Required: &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{MatchExpressions: []v1.NodeSelectorRequirement{
		{Key: "topology.example.com/rack", Operator: v1.NodeSelectorOpIn, Values: []string{"r7"}},
	}}}}}
	pv.Spec.ClaimRef = &v1.ObjectReference{Namespace: "factory", Name: "data", UID: "claim"}
	claim := &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "factory", Name: "data", UID: "claim"}, Status: v1.PersistentVolumeClaimStatus{Phase: v1.ClaimBound}}
	claim.Spec.VolumeName = "pv"
	api.Create(&v1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "vault", Name: "key"}, Data: map[string][]byte{"password": []byte("hunter22")}})
	api.Create(pv)
	api.Create(claim)
	api.Create(&v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "factory", Name: "sensor"},
		Spec: v1.PodSpec{
			NodeName: "edge-7", RestartPolicy: v1.RestartPolicyAlways, DNSPolicy: v1.DNSDefault,
			Volumes: []v1.Volume{{Name: "data", VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}},
			Containers: []v1.Container{{Name: "c", Image: "registry.example/sensor:1", ImagePullPolicy: v1.PullIfNotPresent, Args: []string{"sleep", "forever"},
				VolumeMounts: []v1.VolumeMount{{Name: "data", MountPath: "/data"}}}},
		},
	})
	const volume = v1.UniqueVolumeName("kubernetes.io/csi/" + driverName + "^h1")
	m.until("the node says that it uses the volume", func() bool {
		n, _ := api.Get(&v1.Node{}, "", "edge-7").(*v1.Node)
		return slices.Contains(n.Status.VolumesInUse, volume)
	})
	m.until("the pod says whom it waits for", func() bool {
		return strings.Contains(m.why(), "waits for a controller to make VolumeAttachment")
	})
	if n := m.driver.Count("NodeStageVolume"); n != 0 {
		t.Error("it is staged already")
	}
	// What the controllers of a cluster do. The name is that which they give it.
	var name string
	for _, r := range api.Requests() {
		if r.Resource == kubeapi.VolumeAttachments {
			name = r.Key.Name
		}
	}
	n := api.Get(&v1.Node{}, "", "edge-7").(*v1.Node)
	n.Status.VolumesAttached = []v1.AttachedVolume{{Name: volume}}
	api.Create(&storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: storagev1.VolumeAttachmentSpec{Attacher: driverName, NodeName: "edge-7"},
		Status: storagev1.VolumeAttachmentStatus{Attached: true, AttachmentMetadata: map[string]string{"lun": "3"}},
	})
	api.Put(n)
	m.until("the pod runs", func() bool {
		p, _ := api.Get(&v1.Pod{}, "factory", "sensor").(*v1.Pod)
		return p != nil && p.Status.Phase == v1.PodRunning
	})
	for _, c := range m.driver.Calls() {
		if r, ok := c.Request.(*spec.NodePublishVolumeRequest); ok && (r.GetPublishContext()["lun"] != "3" || r.GetSecrets()["password"] != "hunter22") {
			t.Errorf("published with %v", r)
		}
	}
}
