// Package wirecodec decodes the answers of gRPC servers that are not trusted: a
// message that has too many fields is refused before it is made.
package wirecodec

import (
	"fmt"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/nodewright/nodewright/internal/wirecount"
)

// Codec is an encoding.CodecV2 for protobuf. It is safe for concurrent use.
type Codec struct {
	// Fields is how many fields an answer may have, those of messages within
	// it counted.
	Fields int
	// Shapes are those of the answers that have messages within, by their names.
	// Those of maps are messages of a key and a value.
	Shapes map[protoreflect.Name]wirecount.Shape
}

// Marshal encodes a message.
func (Codec) Marshal(v any) (mem.BufferSlice, error) {
	m, ok := v.(proto.Message)
	if !ok {
		return nil, fmt.Errorf("message is a %T; want one of protobuf", v)
	}
	b, err := proto.Marshal(m)
	return mem.BufferSlice{mem.SliceBuffer(b)}, err
}

// Unmarshal decodes a message, or returns an error that is wirecount.ErrTooMany.
func (c Codec) Unmarshal(data mem.BufferSlice, v any) error {
	m, ok := v.(proto.Message)
	if !ok {
		return fmt.Errorf("message is a %T; want one of protobuf", v)
	}
	b := data.Materialize()
	if err := wirecount.Check(b, c.Shapes[m.ProtoReflect().Descriptor().Name()], c.Fields); err != nil {
		return err
	}
	return proto.Unmarshal(b, m)
}

// Name is not sent: what is sent is what gRPC sends by default.
func (Codec) Name() string { return "" }
