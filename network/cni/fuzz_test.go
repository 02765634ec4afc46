package cni

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/containernetworking/cni/pkg/types/create"
)

// Whatever a file has: no panic, and what is valid survives a record and comes
// to the plugin as it stands there.
func FuzzConf(f *testing.F) {
	for _, s := range []string{
		"", "{", "null", `{"name":"net"}`, oneConf("net", "1.1.0", `{"type":"main","x":12345678901234567890}`),
		`{"cniVersion":"1.0.0","name":"net","type":"main","capabilities":{"portMappings":true}}`,
		`{"cniVersions":["0.4.0","1.0.0"],"name":"net","disableCheck":"true","plugins":[{"type":"a"},{"type":"b","capabilities":{"dns":false}}]}`,
		`{"Name":"net","plugins":[{"Type":"a"}]}`, `{"name":"net","plugins":[{"type":"a","type":"b"}]}`,
	} {
		f.Add([]byte(s), true)
		f.Add([]byte(s), false)
	}
	f.Fuzz(func(t *testing.T, data []byte, isList bool) {
		file := "10.conf"
		if isList {
			file = "10.conflist"
		}
		l, err := parseConf(file, data)
		if err != nil || len(l.plugins) == 0 {
			return
		}
		if !legalName.MatchString(l.name) || len(l.offers) == 0 {
			t.Fatalf("%+v", l)
		}
		s := saved{Format: savedFormat, File: l.file, Version: l.offers[0], List: l.bytes, IfName: ifName}
		b, err := s.encode()
		if err != nil {
			return
		}
		back, err := decodeSaved(b)
		if err != nil || !bytes.Equal(back.list.bytes, l.bytes) || len(back.list.plugins) != len(l.plugins) {
			t.Fatalf("%+v, %v", back, err)
		}
		for i, c := range back.list.forLibcni().Plugins {
			if c.Network.Type != l.plugins[i].kind {
				t.Fatalf("%s; want %s", c.Network.Type, l.plugins[i].kind)
			}
			req, err := back.list.request(c.Bytes)
			if err != nil {
				t.Fatal(err)
			}
			var got map[string]json.RawMessage
			if err := json.Unmarshal(req, &got); err != nil {
				t.Fatalf("%s: %v", req, err)
			}
			for k, v := range l.plugins[i].fields {
				if !bytes.Equal(got[k], v) {
					t.Fatalf("%s is %s; want %s", k, got[k], v)
				}
			}
		}
	})
}

// Whatever a plugin answers to ADD: no panic, and addresses that can be.
func FuzzResult(f *testing.F) {
	for _, v := range []string{"0.1.0", "0.2.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"} {
		f.Add([]byte(`{"cniVersion":"` + v + `","interfaces":[{"name":"eth0","sandbox":"/n"}],"ips":[{"version":"4","address":"10.0.0.1/8","interface":0}],"ip4":{"ip":"10.0.0.1/8","routes":[{"dst":"0.0.0.0/0"}]},"routes":[{"dst":"::/0","gw":"fd00::1"}]}`))
	}
	f.Add([]byte(`{"cniVersion":"1.0.0","interfaces":[null],"ips":[null]}`))
	f.Add([]byte(`null`))
	f.Add([]byte(`{"cniVersion":"0.4.0","ips":[{}]}`)) // what libcni writes of it cannot be read
	f.Fuzz(func(t *testing.T, data []byte) {
		if checkResult(data) != nil {
			return
		}
		r, err := create.CreateFromBytes(data)
		if err != nil {
			t.Fatal(err)
		}
		ips, err := addresses(r, ifName, "/n", IPv6)
		if err == nil && (len(ips) == 0 || len(ips) > maxAddresses) {
			t.Fatalf("%v", ips)
		}
		raw, err := extra(r)
		if err != nil {
			return
		}
		if err := checkResult(raw); err != nil {
			t.Fatalf("%s: what was recorded cannot be read: %v", raw, err)
		}
	})
}

// Whatever a record or a file of the cache has: no panic.
func FuzzSaved(f *testing.F) {
	s := saved{Format: savedFormat, File: "10.conflist", Version: "1.0.0", List: []byte(oneConf("net", "1.0.0", `{"type":"main"}`)), IfName: ifName,
		Args: [][2]string{{"IgnoreUnknown", "1"}}, Capabilities: map[string]json.RawMessage{"dns": json.RawMessage(`{}`)}}
	b, err := s.encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte(`{"format":1}`))
	e, err := json.Marshal(entry{Kind: "cniCacheV1", ContainerID: "a", Config: s.List, IfName: ifName, NetworkName: "net", Result: json.RawMessage(resultOfOne)})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(e)
	f.Fuzz(func(t *testing.T, data []byte) {
		if s, err := decodeSaved(data); err == nil {
			s.runtime("a", "/n")
			if _, err := s.encode(); err != nil && len(data) < maxSaved/2 {
				t.Fatal(err)
			}
		}
		if e, err := parseEntry(data); err == nil {
			_, _ = e.record()
		}
	})
}

const resultOfOne = `{"cniVersion":"1.0.0","ips":[{"address":"10.0.0.1/8"}]}`
