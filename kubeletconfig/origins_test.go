package kubeletconfig_test

import (
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"k8s.io/kubelet/config/v1beta1"

	"github.com/nodewright/nodewright/kubeletconfig"
)

// Every value says where it was set last: in a file, with the line, by a flag, or nowhere.
func TestValuesHaveTheirOrigin(t *testing.T) {
	dir := t.TempDir()
	const begin = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
	main, drop := filepath.Join(dir, "agent.yaml"), filepath.Join(dir, "d", "10.conf")
	for name, text := range map[string]string{
		main: begin + "maxPods: 50\nevictionHard:\n  memory.available: 100Mi\nauthentication:\n  anonymous: {enabled: false}\n  webhook:\n    enabled: false\nserverTLSBootstrap: false\n" +
			"featureGates: {NodeSwap: true}\npodPidsLimit: 7\nclusterDNS: [10.0.0.10]\nstaticPodURL: https://me:secret@example.com/pods?token=secret\n",
		drop: begin + "podPidsLimit: 8\nclusterDomain: null\n",
	} {
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	f := kubeletconfig.NewFlags()
	fs := flag.NewFlagSet("agent", flag.ContinueOnError)
	f.Bind(fs)
	fs.String("own", "x", "")
	if err := fs.Parse([]string{"--config", main, "--config-dir", filepath.Dir(drop), "--max-pods=60", "--pod-manifest-path=/m", "--feature-gates=GracefulNodeShutdown=true", "--root-dir=/r"}); err != nil {
		t.Fatal(err)
	}
	c, _, err := kubeletconfig.Load(kubeletconfig.Options{Flags: f})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, v := range append(c.Values(), f.Values()...) {
		if strings.Contains(v.Field, "secret") || reflect.ValueOf(v.Value).Kind() == reflect.String && strings.Contains(v.Value.(string), "secret") { //nolint:forcetypeassert // a string
			t.Errorf("a credential is shown: %+v", v)
		}
		got[v.Field] = v.Origin
	}
	for field, want := range map[string]string{
		"maxPods": "--max-pods", "evictionHard.memory.available": main + ":5", "authentication.anonymous.enabled": main + ":7", "authentication.webhook.enabled": main + ":9",
		"featureGates.NodeSwap": main + ":11", "featureGates.GracefulNodeShutdown": "--feature-gates", "podPidsLimit": drop + ":3",
		"clusterDNS": main + ":13", "staticPodPath": "--pod-manifest-path", "imageGCHighThresholdPercent": "default", "--root-dir": "--root-dir", "--own": "default", "--max-pods": "", "kind": "",
	} {
		if got[field] != want {
			t.Errorf("%s is of %q, want %q", field, got[field], want)
		}
	}
}

// Each flag of a field names one that there is.
func TestFlagsOfFieldsNameOne(t *testing.T) {
	known := map[string]bool{}
	for i, typ := 0, reflect.TypeFor[v1beta1.KubeletConfiguration](); i < typ.NumField(); i++ {
		name, _, _ := strings.Cut(typ.Field(i).Tag.Get("json"), ",")
		known[name] = true
	}
	for name, path := range kubeletconfig.FieldsOfFlags() {
		if top, _, _ := strings.Cut(path, "."); !known[top] {
			t.Errorf("--%s sets %q, which is no field", name, path)
		}
	}
}
