//go:build otlp

// With the build tag otlp the agent sends what it records to the OpenTelemetry collector that the
// field tracing of its configuration names.

package main

import (
	"github.com/nodewright/nodewright/agent/part"
	"github.com/nodewright/nodewright/nodeagent"
	"github.com/nodewright/nodewright/record/otlp"
)

// moreFields are the fields of the configuration that only this build uses.
var moreFields = []string{"tracing"}

// exporter returns the maker of the part that sends to the collector.
func exporter() []nodeagent.Maker {
	return []nodeagent.Maker{func(b *nodeagent.Builder) (part.Part, error) {
		t := b.Config.Tracing
		if t == nil {
			return nil, nil
		}
		// Without a rate the kubelet makes no traces of its own either.
		c := otlp.Config{SamplesPerMillion: -1, Node: b.Node.Name, Version: versionString(), Log: b.Log.Named("otlp"), Metrics: b.Metrics}
		if t.Endpoint != nil {
			c.Endpoint = *t.Endpoint
		}
		if t.SamplingRatePerMillion != nil && *t.SamplingRatePerMillion > 0 {
			c.SamplesPerMillion = int(*t.SamplingRatePerMillion)
		}
		return otlp.New(c)
	}}
}
