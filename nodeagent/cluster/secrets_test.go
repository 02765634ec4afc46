package cluster_test

import (
	"bytes"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodewright/nodewright/cri/critest"
	"github.com/nodewright/nodewright/internal/testrun"
	"github.com/nodewright/nodewright/kubeapi/kubeapitest"
	"github.com/nodewright/nodewright/nodeagent"
	"github.com/nodewright/nodewright/nodeagent/cluster"
)

const hidden, hiddenInJSON = "hidden", "aGlkZGVu" // the second is base64

// remembered is the file of the Secret that a node remembers.
func remembered(t *testing.T, root string) []byte {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, "cluster", "pods", "secret-*"))
	if err != nil {
		t.Fatal(err)
	}
	if len(files) == 0 || strings.HasSuffix(files[0], ".tmp") {
		return nil
	}
	b, _ := os.ReadFile(files[0])
	return b
}

// life runs a node until done, and returns what it has logged of its key.
func life(t *testing.T, o nodeagent.Options, done func() bool) (logs *observer.ObservedLogs) {
	t.Helper()
	rt, ok := o.Runtime.(*critest.Runtime)
	if !ok {
		rt = critest.New()
	}
	rt.AddImage("registry.example/sensor:1")
	core, logs := observer.New(zapcore.WarnLevel)
	o.Runtime, o.Images, o.Join, o.Log = rt, rt, cluster.Join, zap.New(core)
	n, err := nodeagent.New(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	stop := testrun.Start(t, n.Run)
	for at := time.Now(); !done(); time.Sleep(5 * time.Millisecond) {
		if time.Since(at) > 2*time.Minute {
			t.Error("not within two minutes")
			break
		}
	}
	stop()
	return logs
}

// A Secret that a node remembers is encrypted, unless somebody asks for it to be in
// the clear; one that was in the clear is encrypted by the next life. A node whose
// key is gone starts, and so does one whose key cannot be used.
func TestSecretsAreSealedByDefault(t *testing.T) {
	api := kubeapitest.New()
	srv := httptest.NewTLSServer(api)
	defer srv.Close()
	defer api.Stop()
	api.Create(&v1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "factory", Name: "s"}, Data: map[string][]byte{"key": []byte(hidden)}})
	api.Create(&v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "factory", Name: "sensor"},
		Spec: v1.PodSpec{
			NodeName: "edge-7", RestartPolicy: v1.RestartPolicyAlways, DNSPolicy: v1.DNSDefault,
			Containers: []v1.Container{{
				Name: "c", Image: "registry.example/sensor:1", ImagePullPolicy: v1.PullIfNotPresent, Args: []string{"sleep", "forever"},
				Env: []v1.EnvVar{{Name: "S", ValueFrom: &v1.EnvVarSource{SecretKeyRef: &v1.SecretKeySelector{LocalObjectReference: v1.LocalObjectReference{Name: "s"}, Key: "key"}}}},
			}},
		},
	})
	conf := configure(t.TempDir(), srv)
	root := conf.RootDir
	key := filepath.Join(root, "secret.key")
	clearText := func() bool { return bytes.Contains(remembered(t, root), []byte(hiddenInJSON)) }
	sealed := func() bool { b := remembered(t, root); return b != nil && !clearText() }

	life(t, nodeagent.Options{Config: conf, Settings: nodeagent.Settings{SecretsInClear: true}}, clearText)
	if _, err := os.Lstat(key); err == nil {
		t.Error("a key was made for nothing")
	}
	life(t, nodeagent.Options{Config: conf}, sealed)
	first, err := os.ReadFile(key)
	if info, serr := os.Lstat(key); err != nil || serr != nil || info.Mode() != 0o600 || bytes.Contains(remembered(t, root), []byte(hidden)) {
		t.Errorf("key %v, %v", info, err)
	}

	if err := os.Remove(key); err != nil {
		t.Fatal(err)
	}
	before := remembered(t, root)
	logs := life(t, nodeagent.Options{Config: conf}, func() bool { return sealed() && !bytes.Equal(remembered(t, root), before) })
	if n := logs.FilterMessageSnippet("failed to decrypt stored Secrets").Len(); n != 1 {
		t.Errorf("%d lines about the lost key: %+v", n, logs.All())
	}
	if second, err := os.ReadFile(key); err != nil || bytes.Equal(first, second) {
		t.Errorf("the key is the old one (%v)", err)
	}

	if err := os.Chmod(key, 0o644); err != nil {
		t.Fatal(err)
	}
	logs = life(t, nodeagent.Options{Config: conf}, func() bool {
		p, _ := api.Get(&v1.Pod{}, "factory", "sensor").(*v1.Pod)
		return p.Status.Phase == v1.PodRunning
	})
	if l := logs.FilterMessageSnippet("failed to open key"); l.Len() != 1 || !strings.Contains(l.All()[0].ContextMap()["error"].(string), key) {
		t.Errorf("logged %+v", logs.All())
	}

	both := nodeagent.Settings{SecretKeyFile: "/k", SecretsInClear: true}
	if _, err := nodeagent.New(t.Context(), nodeagent.Options{Config: conf, Join: cluster.Join, Settings: both}); err == nil || !strings.Contains(err.Error(), `SecretKeyFile is "/k"`) {
		t.Errorf("two sources of the key: %v", err)
	}
}
