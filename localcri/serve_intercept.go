//go:build linux

package localcri

import (
	"context"
	"errors"
	"fmt"

	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/nodewright/nodewright/internal/rpcerror"
)

// ready returns Unavailable until the runtime has recovered.
func (s *Server) ready() error {
	if s.cfg.Ready == nil {
		return nil
	}
	select {
	case <-s.cfg.Ready:
		return nil
	default:
		return rpcerror.New(codes.Unavailable, "the runtime has not recovered from its restart yet")
	}
}

func (s *Server) unary(ctx context.Context, q any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (_ any, err error) {
	if err := s.ready(); err != nil {
		return nil, err
	}
	defer s.caught(info.FullMethod, &err)
	out, err := handle(ctx, q)
	return out, serverCoded(err)
}

func (s *Server) stream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) (err error) {
	if err := s.ready(); err != nil {
		return err
	}
	defer s.caught(info.FullMethod, &err)
	return serverCoded(handle(srv, stream))
}

// caught turns a panic of a runtime, which may belong to an embedding program, into an error of
// the call.
func (s *Server) caught(method string, err *error) {
	if p := recover(); p != nil {
		s.cfg.Log.Error("call panicked", zap.String("method", method), zap.String("panic", fmt.Sprint(p)), zap.Stack("stack"))
		*err = rpcerror.New(codes.Internal, fmt.Sprintf("%s panicked: %v", method, p))
	}
}

// serverCoded gives errors of contexts the gRPC codes that clients expect. Other errors keep
// their code, or get Unknown.
func serverCoded(err error) error {
	if err == nil {
		return nil
	}
	if _, ok := status.FromError(err); ok {
		return err
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return rpcerror.New(codes.DeadlineExceeded, err.Error())
	case errors.Is(err, context.Canceled):
		return rpcerror.New(codes.Canceled, err.Error())
	}
	return err
}
