package dra

import (
	"encoding/json"
	"hash/crc32"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// kubeletClaims is a file that a kubelet of 1.36 has written.
func kubeletClaims(t testing.TB) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", kubeletFile))
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}

// sealed is a file with these claims.
func sealed(claims string) []byte {
	data := `{"kind":"DRACheckpoint","apiVersion":"checkpoint.dra.kubelet.k8s.io/v1","ClaimInfoStateList":` + claims + `}`
	b, err := json.Marshal(kubeletFormat{Data: data, Checksum: crc32.ChecksumIEEE([]byte(data))})
	if err != nil {
		panic(err)
	}
	return b
}

func TestDecodeKubelet(t *testing.T) {
	theirs := kubeletClaims(t)
	list, _, problems, err := decodeKubelet([]byte(theirs))
	if err != nil || len(problems) > 0 || len(list) != 2 {
		t.Fatalf("%v, %v, %v", list, problems, err)
	}
	a, err := json.Marshal(list[0])
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"version":1,"uid":"uid-a","namespace":"default","name":"a","pods":[{"uid":"pod-1"},{"uid":"pod-2"}],"drivers":[` +
		`{"name":"gpu.example.com","prepared":true,"devices":[{"pool":"n","name":"x","requests":["r"],"cdi":["v/c=x"]},{"pool":"n","name":"y","share":"s1"}]},{"name":"net.example.com"}]}`; string(a) != want {
		t.Errorf("a is %s, want %s", a, want)
	}
	if ours, _, err := encodeKubelet([]record{*list[1], *list[0]}); err != nil || string(ours) != theirs {
		t.Errorf("written again: %s, %v; want %s", ours, err, theirs)
	}
	for text, want := range map[string]string{
		"": "unexpected end",
		strings.Replace(theirs, "v/c=x", "v/c=y", 1): "checksum is 2619559001; want ",
		string(sealed("1")):                          "cannot unmarshal",
		`{"Data":"{}","Checksum":2745614147}`:        `kind is "" of ""; want DRACheckpoint`,
	} {
		if got, _, _, err := decodeKubelet([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, %v; want %q in the error", text, got, err, want)
		}
	}
	const good = `{"ClaimUID":"u","ClaimName":"c","Namespace":"n","PodUIDs":{"p":{}}}`
	for claims, want := range map[string]string{
		`[{},` + good + `]`:           `claim 0: uid is ""`,
		`[` + good + `,` + good + `]`: `claim 1: uid "u" is in two entries`,
		`[` + good + `,` + strings.Replace(good, `"u"`, `"../u"`, 1) + `]`: `claim 1: uid is "../u"`,
		`[` + good + `,{"ClaimUID":"v","ClaimName":"c","Namespace":"n"}]`:  "pods is empty",
	} {
		if got, _, problems, err := decodeKubelet(sealed(claims)); err != nil || len(got) != 1 || len(problems) != 1 || !strings.Contains(problems[0].Error(), want) {
			t.Errorf("%s: %v, %v, %v; want one claim and %q", claims, got, problems, err, want)
		}
	}
}

func FuzzDecodeKubelet(f *testing.F) {
	f.Add(`[{"ClaimUID":"u","ClaimName":"c","Namespace":"n","PodUIDs":{"p":{}},"DriverState":{"d.e":{"Devices":[{"ShareID":"s"},{}]}}}]`)
	f.Add(`[{"ClaimUID":"u"},{}]`)
	f.Fuzz(func(t *testing.T, claims string) {
		list, _, _, err := decodeKubelet(sealed(claims))
		if err != nil {
			return
		}
		all := make([]record, 0, len(list))
		for _, r := range list {
			all = append(all, *r)
		}
		b, _, err := encodeKubelet(all)
		if err != nil {
			t.Fatal(err)
		}
		if again, _, problems, err := decodeKubelet(b); err != nil || len(problems) > 0 || len(again) != len(list) {
			t.Errorf("%q is %q again (%v, %v)", claims, b, problems, err)
		}
	})
}
