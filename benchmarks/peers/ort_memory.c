// What ONNX Runtime takes by itself, without Python around it: opens a model, runs it on zeros, prints the bytes that the
// process held at most and the seconds from its start to its first result.
//
//   cc -O1 -o ort_memory ort_memory.c -ldl && ./ort_memory libonnxruntime.so model.onnx THREADS RUNS
//
// The wheel brings the library but no header. The functions are members of a table that only ever grows, so they are
// named here by their places in it.
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    ErrorMessage = 2, CreateEnv = 3, CreateSession = 7, Run = 9, CreateSessionOptions = 10, SetIntraOpNumThreads = 24,
    InputCount = 30, OutputCount = 31, InputTypeInfo = 33, InputName = 36, OutputName = 37, CreateTensor = 48,
    TensorData = 51, CastToTensorInfo = 55, ElementType = 60, DimensionsCount = 61, Dimensions = 62, Allocator = 78,
};
#define CALL(f, ...) check(((void *(*)())api[f])(__VA_ARGS__))

static void **api;

static void check(void *status) {
    if (!status) return;
    fprintf(stderr, "%s\n", ((const char *(*)(void *))api[ErrorMessage])(status));
    exit(1);
}

static int element_bytes(int type) {
    switch (type) { // ONNXTensorElementDataType
    case 1: case 6: case 12: return 4;
    case 7: case 11: case 13: return 8;
    case 4: case 5: case 10: case 16: return 2;
    }
    return 1;
}

static long peak_bytes(void) { // getrusage would tell that of the process which started this one, if that was more
    char line[256];
    long kib = 0;
    FILE *f = fopen("/proc/self/status", "r");
    while (f && fgets(line, sizeof line, f)) sscanf(line, "VmHWM: %ld", &kib);
    return kib * 1024;
}

int main(int argc, char **argv) {
    struct timespec begin, end;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    void *library = argc == 5 ? dlopen(argv[1], RTLD_NOW) : NULL;
    if (!library) return fprintf(stderr, "usage: ort_memory LIBRARY MODEL THREADS RUNS\n%s\n", argc == 5 ? dlerror() : ""), 2;
    struct { void **(*get)(uint32_t); } *base = ((void *(*)(void))dlsym(library, "OrtGetApiBase"))();
    api = base->get(20);
    void *env, *options, *session, *allocator, *info, *tensor, *data, *in[64] = {0}, *out[256] = {0};
    char *in_names[64], *out_names[256];
    size_t inputs, outputs;
    CALL(CreateEnv, 3, "m", &env);
    CALL(CreateSessionOptions, &options);
    CALL(SetIntraOpNumThreads, options, atoi(argv[3]));
    CALL(CreateSession, env, argv[2], options, &session);
    CALL(Allocator, &allocator);
    CALL(InputCount, session, &inputs);
    CALL(OutputCount, session, &outputs);
    if (inputs > 64 || outputs > 256) return 1;
    for (size_t i = 0; i < inputs; i++) {
        size_t rank;
        int64_t shape[8], bytes;
        int type;
        CALL(InputName, session, i, allocator, &in_names[i]);
        CALL(InputTypeInfo, session, i, &info);
        CALL(CastToTensorInfo, info, &tensor);
        CALL(ElementType, tensor, &type);
        CALL(DimensionsCount, tensor, &rank);
        if (rank > 8) return 1;
        CALL(Dimensions, tensor, shape, rank);
        bytes = element_bytes(type);
        for (size_t d = 0; d < rank; d++) bytes *= shape[d];
        CALL(CreateTensor, allocator, shape, rank, type, &in[i]);
        CALL(TensorData, in[i], &data);
        memset(data, 0, bytes);
    }
    for (size_t i = 0; i < outputs; i++) CALL(OutputName, session, i, allocator, &out_names[i]);
    for (int run = 0; run < atoi(argv[4]); run++) {
        CALL(Run, session, NULL, in_names, in, inputs, out_names, outputs, out);
        if (run == 0) clock_gettime(CLOCK_MONOTONIC, &end);
    }
    printf("{\"peak\": %ld, \"ready_seconds\": %f}\n", peak_bytes(),
           end.tv_sec - begin.tv_sec + 1e-9 * (end.tv_nsec - begin.tv_nsec));
    return 0;
}
