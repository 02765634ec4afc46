package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"
)

// Types for a document of SPDX 2.3 (https://spdx.github.io/spdx-spec/v2.3/), with the
// fields that a list of modules needs.
type (
	spdxDocument struct {
		Version       string             `json:"spdxVersion"`
		License       string             `json:"dataLicense"`
		ID            string             `json:"SPDXID"`
		Name          string             `json:"name"`
		Namespace     string             `json:"documentNamespace"`
		Creation      spdxCreation       `json:"creationInfo"`
		Packages      []spdxPackage      `json:"packages"`
		Relationships []spdxRelationship `json:"relationships"`
	}
	spdxCreation struct {
		Created  string   `json:"created"`
		Creators []string `json:"creators"`
	}
	spdxPackage struct {
		ID        string         `json:"SPDXID"`
		Name      string         `json:"name"`
		Version   string         `json:"versionInfo"`
		Location  string         `json:"downloadLocation"`
		Analyzed  bool           `json:"filesAnalyzed"`
		Checksums []spdxChecksum `json:"checksums,omitempty"`
		Comment   string         `json:"comment,omitempty"`
		Refs      []spdxRef      `json:"externalRefs,omitempty"`
	}
	spdxChecksum struct {
		Algorithm string `json:"algorithm"`
		Value     string `json:"checksumValue"`
	}
	spdxRef struct {
		Category string `json:"referenceCategory"`
		Type     string `json:"referenceType"`
		Locator  string `json:"referenceLocator"`
	}
	spdxRelationship struct {
		Element string `json:"spdxElementId"`
		Type    string `json:"relationshipType"`
		Related string `json:"relatedSpdxElement"`
	}
)

// bill returns the SPDX list of the program's components: its module, Go with the
// standard library, and the modules of all packages in it.
func (p *packaging) bill() ([]byte, error) {
	binary := sha256.Sum256(p.binary)
	const document, self = "SPDXRef-DOCUMENT", "SPDXRef-Program"
	d := spdxDocument{
		Version: "SPDX-2.3", License: "CC0-1.0", ID: document,
		Name:      fmt.Sprintf("%s-%s-linux-%s", program, p.build.version, p.arch),
		Namespace: "https://nodewright.io/spdx/" + hex.EncodeToString(binary[:]),
		Creation:  spdxCreation{p.build.time.UTC().Format(time.RFC3339), []string{"Tool: nodewright-release"}},
		Packages: []spdxPackage{{
			ID: self, Name: program, Version: p.build.version, Location: "NOASSERTION",
			Checksums: []spdxChecksum{{"SHA256", hex.EncodeToString(binary[:])}},
			Comment:   "commit " + p.build.commit,
		}},
		Relationships: []spdxRelationship{{document, "DESCRIBES", self}},
	}
	for i, m := range p.build.modules {
		id := fmt.Sprintf("SPDXRef-Module-%d", i)
		pkg := spdxPackage{
			ID: id, Name: m.path, Version: m.version, Location: "NOASSERTION",
			Refs: []spdxRef{{"PACKAGE-MANAGER", "purl", "pkg:golang/" + m.path + "@" + m.version}},
		}
		if m.sum != "" { // a hash of a directory; SPDX has no checksum type for it
			pkg.Comment = "go.sum " + m.sum
		}
		d.Packages = append(d.Packages, pkg)
		d.Relationships = append(d.Relationships, spdxRelationship{self, "CONTAINS", id})
	}
	b, err := json.MarshalIndent(d, "", "  ")
	return append(b, '\n'), err
}
