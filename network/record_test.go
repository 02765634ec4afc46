package network

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"
)

func sample() record {
	return record{
		Plugin: "cni", Saved: []byte("\x00plan"), Netns: "/run/netns/x", Boot: "b", Created: time.Unix(1, 0).UTC(), Token: "t",
		Attachment: Attachment{
			ID: "a", Namespace: "ns", Name: "n", UID: "u", Hostname: "h", CgroupParent: "/kubepods",
			Ports:       []Port{{"tcp", netip.MustParseAddr("::1"), 80, 8080}, {"udp", netip.Addr{}, 53, 53}},
			Annotations: map[string]string{"k": "<v>"}, Labels: map[string]string{"a": "b"},
			DNS: DNS{Servers: []string{"1.1.1.1"}}, Ingress: 1000, Egress: 1_000_000_000_000_000,
		},
	}
}

func TestRecordsComeBack(t *testing.T) {
	want := sample()
	b, err := encodeFile(want)
	if err != nil {
		t.Fatal(err)
	}
	got, err := decodeRecord("a", b)
	if err != nil || !reflect.DeepEqual(*got, want) {
		t.Errorf("%+v, %v", got, err)
	}
	_, before, err := normal(want.Attachment)
	if err != nil {
		t.Fatal(err)
	}
	if _, after, err := normal(got.Attachment); err != nil || after != before {
		t.Errorf("another digest, %v", err)
	}
	p := progress{Token: "t", Space: 9, Result: &Result{Netns: "/run/netns/x", IPs: []netip.Addr{netip.MustParseAddr("10.0.0.1")}, Extra: json.RawMessage(`{"a":"<"}`)}}
	if b, err = encodeFile(p); err != nil {
		t.Fatal(err)
	}
	back := decodeProgress(got, b)
	if back == nil || back.Space != 9 || back.Result.IPs[0] != p.Result.IPs[0] {
		t.Errorf("%+v", back)
	}
	got.Token = "another attempt"
	if decodeProgress(got, b) != nil {
		t.Error("a result of another attempt was taken")
	}
}

// sealed is a file with a checksum that fits.
func sealed(body string) []byte {
	sum := sha256.Sum256([]byte(body))
	return []byte(fileMagic + hex.EncodeToString(sum[:]) + "\n" + body)
}

func TestRecordsThatAreRefused(t *testing.T) {
	good, _ := json.Marshal(sample())
	change := func(old, new string) string {
		out := strings.Replace(string(good), old, new, 1)
		if out == string(good) {
			t.Fatalf("%s is not in it", old)
		}
		return out
	}
	if _, err := decodeRecord("a", sealed(string(good))); err != nil {
		t.Fatal(err)
	}
	for name, body := range map[string]string{
		"no JSON":         "{",
		"another ID":      change(`"id":"a"`, `"id":"b"`),
		"a bad ID":        change(`"id":"a"`, `"id":"../a"`),
		"no plugin":       change(`"plugin":"cni"`, `"plugin":""`),
		"no boot":         change(`"boot":"b"`, `"boot":""`),
		"a relative path": change(`"netns":"/run/netns/x"`, `"netns":"run"`),
		"an odd path":     change(`"netns":"/run/netns/x"`, `"netns":"/run/../x"`),
		"a protocol":      change(`"protocol":"tcp"`, `"protocol":"icmp"`),
		"a bandwidth":     change(`"ingress":1000`, `"ingress":1`),
		"an argument":     change(`"name":"n"`, `"name":"n;K8S_POD_UID=x"`),
	} {
		if r, err := decodeRecord("a", sealed(body)); err == nil {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

func FuzzRecord(f *testing.F) {
	good, _ := json.Marshal(sample())
	f.Add(good, false)
	f.Add([]byte(`{"token":"t","result":{"ips":["10.0.0.1"],"extra":{}}}`), true)
	f.Add([]byte(`{"token":"t","detaching":true}`), true)
	f.Add([]byte(`null`), true)
	f.Fuzz(func(t *testing.T, body []byte, isProgress bool) {
		_, _ = decodeRecord("a", body) // without a header
		file := sealed(string(body))
		if isProgress {
			if p := decodeProgress(&record{Token: "t", Netns: "/x"}, file); p != nil && p.Result != nil && (len(p.Result.IPs) == 0 || p.Result.Netns != "/x") {
				t.Errorf("%+v", p)
			}
			return
		}
		r, err := decodeRecord("a", file)
		if err != nil {
			return
		}
		again, err := encodeFile(r)
		if err != nil {
			return // more than a file may have
		}
		back, err := decodeRecord("a", again)
		if err != nil || back.Attachment.ID != "a" || !bytes.Equal(back.Saved, r.Saved) {
			t.Errorf("%+v, %v", back, err)
		}
	})
}
