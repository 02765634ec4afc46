package schema

import (
	"bytes"
	"compress/gzip"
	_ "embed"
	"encoding/json"
	"fmt"
)

// packedDescriptions are the sentences that Kubernetes' Go types have about their fields
// (SwaggerDoc), for those that a node's API serves. Asking the types themselves would
// link the sentences of all types of Kubernetes, and keep them in memory for ever; these
// are unpacked when somebody asks for a document.
//
//go:embed descriptions.json.gz
var packedDescriptions []byte

// Descriptions are sentences about models and their fields, by the name of the model and
// that of the field, "" being the model itself.
type Descriptions map[string]map[string]string

// descriptions unpacks the sentences of this program.
func descriptions() Descriptions {
	d, err := unpack(packedDescriptions)
	if err != nil {
		panic(err) // TestDescriptions has read them
	}
	return d
}

func unpack(packed []byte) (d Descriptions, err error) {
	r, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, fmt.Errorf("descriptions: %w", err)
	}
	if err := json.NewDecoder(r).Decode(&d); err != nil {
		return nil, fmt.Errorf("descriptions: %w", err)
	}
	return d, nil
}
