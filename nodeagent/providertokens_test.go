package nodeagent

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	authv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/images"
	"github.com/nodewright/nodewright/kubeletconfig"
	"github.com/nodewright/nodewright/volumemgr/plugins"
)

// tokensOf are tokens that say what was asked for.
type tokensOf struct{}

func (tokensOf) Token(_ context.Context, namespace, account string, spec authv1.TokenRequestSpec) (plugins.Token, error) {
	return plugins.Token{Value: namespace + "/" + account + "/" + strings.Join(spec.Audiences, "+") + "/" + spec.BoundObjectRef.Name + "/" + string(spec.BoundObjectRef.UID)}, nil
}

func (tokensOf) Forget(types.UID) {}

// In a cluster a credential provider gets a token of the pod's service account, and
// alone it is refused if it cannot do without.
func TestProviderTokens(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("HOME", dir)
	program := `#!/bin/sh
token=$(sed 's/.*"serviceAccountToken":"\([^"]*\)".*/\1/')
echo '{"apiVersion":"credentialprovider.kubelet.k8s.io/v1","kind":"CredentialProviderResponse","cacheKeyType":"Global","auth":{"r.example":{"username":"'$token'"}}}'`
	config := `apiVersion: kubelet.config.k8s.io/v1
kind: CredentialProviderConfig
providers:
- {name: p, matchImages: [r.example], defaultCacheDuration: 1h, apiVersion: credentialprovider.kubelet.k8s.io/v1,
   tokenAttributes: {serviceAccountTokenAudience: reg, cacheType: Token, requireServiceAccount: true, requiredServiceAccountAnnotationKeys: [role]}}
`
	if err := errors.Join(os.WriteFile(filepath.Join(dir, "p"), []byte(program), 0o700), os.WriteFile(filepath.Join(dir, "c.yaml"), []byte(config), 0o600)); err != nil {
		t.Fatal(err)
	}
	b := &Builder{Config: &kubeletconfig.Config{RootDir: dir, CredentialProviderConfig: filepath.Join(dir, "c.yaml"), CredentialProviderDir: dir}}
	if _, err := b.keyrings(); err == nil || !strings.Contains(err.Error(), "need an API server") {
		t.Errorf("alone: %v", err)
	}
	b.Cluster = &Cluster{Tokens: tokensOf{}, ServiceAccount: func(_ context.Context, namespace, name string) (*v1.ServiceAccount, error) {
		return &v1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: "sa-1", Annotations: map[string]string{"role": "x"}}}, nil
	}}
	rings, err := b.keyrings()
	if err != nil {
		t.Fatal(err)
	}
	ring, ok := rings[len(rings)-1].(images.PodKeyring)
	if !ok {
		t.Fatalf("%T knows no pods", rings[len(rings)-1])
	}
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web", UID: "u-1"}, Spec: v1.PodSpec{ServiceAccountName: "sa"}}
	got, err := ring.PodCredentials(t.Context(), "r.example/app", pod)
	if err != nil || len(got) != 1 || got[0].Auth.GetUsername() != "ns/sa/reg/web/u-1" || got[0].Account.UID != "sa-1" {
		t.Errorf("%+v, %v", got, err)
	}
	b.Config.FeatureGates = map[string]bool{"KubeletServiceAccountTokenForCredentialProviders": false}
	if _, err := b.keyrings(); err == nil || !strings.Contains(err.Error(), "want it on") {
		t.Errorf("with the gate off: %v", err)
	}
}
