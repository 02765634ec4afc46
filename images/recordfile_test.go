package images

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubelet "k8s.io/kubelet/config/v1beta1"

	"github.com/nodewright/nodewright/internal/safefile"
)

// openRecords returns the records of a directory, as after a start.
func openRecords(t testing.TB, dir string) *records {
	t.Helper()
	met, err := newMetrics(nil)
	if err != nil {
		t.Fatal(err)
	}
	return newRecords(dir, zap.NewNop(), met)
}

func someRecord() *pulledRecord {
	r, _ := (*pulledRecord)(nil).updated("sha256:1", "docker.io/team/app", creds("a=1 b=2 @c"), time.Unix(1700000000, 0))
	r, _ = r.updated("sha256:1", "registry.example/app", creds("node"), time.Unix(1700000000, 0))
	return r
}

// The kubelet's own types can read the files written here, and the other way round.
func TestFilesAreTheKubelets(t *testing.T) {
	dir := t.TempDir()
	s := openRecords(t, dir)
	if err := s.begin("team/app:1", ""); err != nil {
		t.Fatal(err)
	}
	record := someRecord()
	for repository, c := range record.CredentialMapping {
		if err := s.note("sha256:1", repository, c); err != nil {
			t.Fatal(err)
		}
	}
	read := func(part, key string, into any) {
		t.Helper()
		b, err := os.ReadFile(filepath.Join(dir, part, recordName(key)))
		if err != nil {
			t.Fatal(err)
		}
		d := json.NewDecoder(strings.NewReader(string(b)))
		d.DisallowUnknownFields()
		if err := d.Decode(into); err != nil {
			t.Fatalf("%s: %v", b, err)
		}
	}
	var intent kubelet.ImagePullIntent
	read("pulling", "team/app:1", &intent)
	version := kubelet.SchemeGroupVersion.String()
	if want := (kubelet.ImagePullIntent{TypeMeta: metav1.TypeMeta{APIVersion: version, Kind: "ImagePullIntent"}, Image: "team/app:1"}); intent != want {
		t.Errorf("intent = %+v, want %+v", intent, want)
	}
	var got kubelet.ImagePulledRecord
	read("pulled", "sha256:1", &got)
	want := kubelet.ImagePulledRecord{
		TypeMeta: metav1.TypeMeta{APIVersion: version, Kind: "ImagePulledRecord"}, ImageRef: "sha256:1", LastUpdatedTime: got.LastUpdatedTime,
		CredentialMapping: map[string]kubelet.ImagePullCredentials{
			"docker.io/team/app": {
				KubernetesSecrets: []kubelet.ImagePullSecret{
					{UID: "u-a", Namespace: "prod", Name: "a", CredentialHash: "1"}, {UID: "u-b", Namespace: "prod", Name: "b", CredentialHash: "2"},
				},
				KubernetesServiceAccounts: []kubelet.ImagePullServiceAccount{{UID: "u-c", Namespace: "prod", Name: "c"}},
			},
			"registry.example/app": {NodePodsAccessible: true},
		},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("record = %+v, want %+v", got, want)
	}
	if d := time.Since(got.LastUpdatedTime.Time); d < 0 || d > time.Minute {
		t.Errorf("updated %v ago, want now", d)
	}

	got.APIVersion = recordVersionOld
	for _, v := range []string{recordVersion, recordVersionOld} {
		got.APIVersion = v
		b, err := json.Marshal(got)
		if err != nil {
			t.Fatal(err)
		}
		r, err := decodeRecord(recordName("sha256:1"), b)
		if err != nil || !reflect.DeepEqual(r.CredentialMapping, record.CredentialMapping) {
			t.Errorf("%s is read as %+v (%v), want %+v", b, r, err, record)
		}
	}
}

func TestFilesAreTheOwnersAlone(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "image_manager")
	s := openRecords(t, dir)
	if err := s.begin("app:1", ""); err != nil {
		t.Fatal(err)
	}
	if err := s.note("sha256:1", "docker.io/library/app", creds("a=1")); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]os.FileMode{
		"": 0o700, "pulling": 0o700, "pulled": 0o700,
		"pulling/" + recordName("app:1"): 0o600, "pulled/" + recordName("sha256:1"): 0o600,
	} {
		fi, err := os.Stat(filepath.Join(dir, path))
		if err != nil || fi.Mode().Perm() != want {
			t.Errorf("%q: mode %v (%v), want %v", path, fi.Mode(), err, want)
		}
	}
	for _, part := range []string{"pulling", "pulled"} {
		entries, err := os.ReadDir(filepath.Join(dir, part))
		if err != nil || len(entries) != 1 {
			t.Errorf("%s: %v (%v), want one file", part, entries, err)
		}
	}
}

func TestRecordName(t *testing.T) {
	const want = "sha256-2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"
	if got := recordName("hello"); got != want {
		t.Errorf("recordName(hello) = %s, want %s", got, want)
	}
}

func TestCheckFile(t *testing.T) {
	good := func() *pulledRecord { return someRecord() }
	for _, tc := range []struct {
		name string
		bend func(r *pulledRecord)
		want string
	}{
		{"good", func(*pulledRecord) {}, ""},
		{"an older version", func(r *pulledRecord) { r.APIVersion = recordVersionOld }, ""},
		{"another version", func(r *pulledRecord) { r.APIVersion = "kubelet.config.k8s.io/v2" }, "want ImagePulledRecord of"},
		{"another kind", func(r *pulledRecord) { r.Kind = intentKind }, "want ImagePulledRecord of"},
		{"no image", func(r *pulledRecord) { r.ImageRef = "" }, "another file name"},
		{"of another image", func(r *pulledRecord) { r.ImageRef = "sha256:2" }, "another file name"},
	} {
		r := good()
		tc.bend(r)
		b, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		_, err = decodeRecord(recordName("sha256:1"), b)
		if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: error = %v, want %q", tc.name, err, tc.want)
		}
	}
}

// A file that was cut off anywhere does not prevent a start, and gives no pod more access.
func TestCutOffFiles(t *testing.T) {
	b, err := json.Marshal(someRecord())
	if err != nil {
		t.Fatal(err)
	}
	intent, err := json.Marshal(pullIntent{TypeMeta: metav1.TypeMeta{APIVersion: recordVersion, Kind: intentKind}, Image: "app:1"})
	if err != nil {
		t.Fatal(err)
	}
	p := policy{verify: NeverVerifyPreloadedImages}
	dir := t.TempDir()
	put := func(part, name string, b []byte) {
		if err := safefile.MakeDirs(filepath.Join(dir, part), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, part, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	stranger := func() asker { return asker{secrets: creds("x=9").KubernetesSecrets} }
	for n := range len(b) {
		put(recordDir, recordName("sha256:1"), b[:n])
		put(recordDir, "."+recordName("sha256:1")+".tmp", b[:n])
		s := openRecords(t, dir)
		if v := p.decide("sha256:1", "docker.io/team/app:1", s.look("sha256:1", "docker.io/team/app:1"), stranger); v.use || v.result != checkUnreadable {
			t.Fatalf("record of %d bytes: %+v, want a pull", n, v)
		}
		if _, err := os.Stat(filepath.Join(dir, recordDir, "."+recordName("sha256:1")+".tmp")); err == nil {
			t.Fatal("a temporary file is left")
		}
	}
	for n := range len(intent) {
		put(intentDir, recordName("app:1"), intent[:n])
		s := openRecords(t, dir)
		if v := p.decide("sha256:2", "app:1", s.look("sha256:2", "app:1"), stranger); v.use {
			t.Fatalf("intent of %d bytes: %+v, want a pull", n, v)
		}
		// The ID of its image is known now.
		if got := s.unsettled(); len(got) != 1 || got[0] != "app:1" {
			t.Fatalf("intent of %d bytes: unsettled %v, want app:1", n, got)
		}
		s.settle("app:1", "sha256:2")
		if k := s.look("sha256:2", "app:1"); k.record == nil || k.pulling {
			t.Fatalf("intent of %d bytes, settled: %+v, want a record", n, k)
		}
	}
	// A new pull writes over what cannot be read.
	s := openRecords(t, dir)
	if err := s.note("sha256:1", "docker.io/team/app", creds("a=1")); err != nil {
		t.Fatal(err)
	}
	if k := openRecords(t, dir).look("sha256:1", "docker.io/team/app"); k.unreadable || k.record.CredentialMapping["docker.io/team/app"].write() != "a=1" {
		t.Errorf("known = %+v, want what was written", k)
	}
}

func TestHash(t *testing.T) {
	base := credential{auth: &runtimeapi.AuthConfig{Username: "u", Password: "p"}}
	seen := map[string]string{base.hash(): "base"}
	for name, c := range map[string]credential{
		"another user":     {auth: &runtimeapi.AuthConfig{Username: "v", Password: "p"}},
		"another password": {auth: &runtimeapi.AuthConfig{Username: "u", Password: "q"}},
		"moved letter":     {auth: &runtimeapi.AuthConfig{Username: "up"}},
		"email":            {auth: base.auth, email: "u@example"},
		"identity token":   {auth: &runtimeapi.AuthConfig{IdentityToken: "u"}},
		"registry token":   {auth: &runtimeapi.AuthConfig{RegistryToken: "u"}},
	} {
		h := c.hash()
		if other, ok := seen[h]; ok || len(h) != 64 {
			t.Errorf("%s: hash %q is also that of %s", name, h, other)
		}
		seen[h] = name
	}
	// Hash of {"username":"u","password":"p"}.
	const want = "edbd57ca9372e64eb1c9070ecf3a049ac553596b0529acf034c7a71d4e618e88"
	if got := base.hash(); got != want {
		t.Errorf("hash = %s, want %s", got, want)
	}
	base.pattern, base.secret = "elsewhere", &pullSecret{Name: "s"}
	if _, ok := seen[base.hash()]; !ok {
		t.Error("the hash depends on where a credential is from")
	}
}

func FuzzRecordFile(f *testing.F) {
	b, err := json.Marshal(someRecord())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(string(b), "sha256:1")
	for _, s := range []string{
		"", "null", "{}", "[]", `{"kind":"ImagePulledRecord","apiVersion":"kubelet.config.k8s.io/v1beta1","imageRef":"a"}`,
		`{"kind":"ImagePullIntent","apiVersion":"kubelet.config.k8s.io/v1alpha1","image":"a"}`,
		`{"kind":"ImagePulledRecord","apiVersion":"kubelet.config.k8s.io/v1beta1","imageRef":"a","credentialMapping":{"a":{"kubernetesSecrets":[null]}}}`,
		`{"kind":"ImagePulledRecord","apiVersion":"kubelet.config.k8s.io/v1beta1","imageRef":"a","lastUpdatedTime":"x"}`,
	} {
		f.Add(s, "a")
	}
	f.Fuzz(func(t *testing.T, data, key string) {
		name := recordName(key)
		if i, err := decodeIntent(name, []byte(data)); err == nil && i.Image != key {
			t.Errorf("%q is an intent of %q, want one of %q", data, i.Image, key)
		}
		r, err := decodeRecord(name, []byte(data))
		if err != nil {
			return
		}
		if r.ImageRef != key {
			t.Errorf("%q is a record of %q, want one of %q", data, r.ImageRef, key)
		}
		// Written and read again, it says the same.
		out, err := json.Marshal(r)
		if err != nil {
			t.Fatalf("%q cannot be written: %v", data, err)
		}
		again, err := decodeRecord(name, out)
		if err != nil {
			t.Fatalf("%q became %q, which cannot be read: %v", data, out, err)
		}
		twice, err := json.Marshal(again)
		if err != nil || string(twice) != string(out) {
			t.Errorf("%q became %q, and that %q (%v)", data, out, twice, err)
		}
		// Without a credential, only images pulled with the node's credentials are accessible.
		p := policy{verify: AlwaysVerify}
		v := p.decide(key, "registry.example/app", known{record: r}, func() asker { return asker{} })
		if v.use && !r.CredentialMapping["registry.example/app"].NodePodsAccessible {
			t.Errorf("%q lets in who has nothing", data)
		}
	})
}
