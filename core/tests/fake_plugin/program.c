#include "program.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct reader {
  const char *at;
  char *error;
} reader;

static bool fail(reader *r, const char *text) {
  if (!*r->error) snprintf(r->error, 256, "fake compiler: %s at \"%.40s\"", text, r->at);
  return false;
}

static void skip_space(reader *r) {
  while (isspace((unsigned char)*r->at)) ++r->at;
}

// tensor<2x3xf32>
static bool read_tensor(reader *r, fake_type *type) {
  skip_space(r);
  if (strncmp(r->at, "tensor<", 7)) return fail(r, "a tensor type is expected");
  r->at += 7;
  size_t count = 1;
  while (isdigit((unsigned char)*r->at)) {
    char *end;
    if (type->rank == PJ_MAX_RANK) return fail(r, "too many dimensions");
    int64_t dim = strtoll(r->at, &end, 10);
    if (*end != 'x') return fail(r, "x is expected after a dimension");
    r->at = end + 1;
    type->dims[type->rank++] = dim;
    count *= (size_t)dim;
  }
  for (int i = 1; i < PJ_DTYPE_COUNT; ++i) {
    const char *name = pj_dtype_name((pj_dtype)i);
    size_t length = strlen(name);
    if (!strncmp(r->at, name, length) && (r->at[length] == '>' || r->at[length] == ',')) type->dtype = (pj_dtype)i;
  }
  if (!type->dtype) return fail(r, "the element type is unknown");
  type->size = count * pj_dtype_size(type->dtype);
  return true;
}

// Goes on to the comma or bracket that ends the present item of a list.
static const char *item_end(const char *at) {
  int depth = 0;
  for (; *at; ++at) {
    if (*at == '"') {
      for (++at; *at && *at != '"'; ++at)
        if (*at == '\\' && at[1]) ++at;
      if (!*at) return at;
    } else if (strchr("(<{[", *at)) {
      ++depth;
    } else if (strchr(")}]", *at) || (*at == '>' && at[-1] != '-')) {
      if (!depth--) return at;
    } else if (*at == ',' && !depth) {
      return at;
    }
  }
  return at;
}

static bool contains(const char *from, const char *to, const char *part) {
  const char *found = strstr(from, part);
  return found && found < to;
}

// "(item, item)" where each item holds a tensor type, or one tensor type alone.
static bool read_types(reader *r, fake_type *types, int *out_count) {
  skip_space(r);
  if (*r->at != '(') {
    *out_count = 1;
    return read_tensor(r, types);
  }
  for (++r->at;;) {
    skip_space(r);
    if (*r->at == ')') break;
    if (*out_count == FAKE_MAX_VALUES) return fail(r, "too many values");
    const char *end = item_end(r->at), *tensor = strstr(r->at, "tensor<");
    if (!tensor || tensor > end) return fail(r, "a tensor type is expected");
    fake_type *type = &types[(*out_count)++];
    type->donated = contains(r->at, end, "tf.aliasing_output") || contains(r->at, end, "jax.buffer_donor");
    r->at = tensor;
    if (!read_tensor(r, type)) return false;
    r->at = end;
    if (*r->at == ',') ++r->at;
    else if (*r->at != ')') return fail(r, "the list of types does not end");
  }
  ++r->at;
  return true;
}

static bool read_signature(reader *r, fake_program *p) {
  const char *main = strstr(r->at, "@main");
  if (!main) return fail(r, "there is no @main");
  r->at = main + 5;
  skip_space(r);
  if (*r->at != '(') return fail(r, "the arguments of @main are expected");
  if (!read_types(r, p->arguments, &p->argument_count)) return false;
  skip_space(r);
  if (strncmp(r->at, "->", 2)) return true;
  r->at += 2;
  return read_types(r, p->results, &p->result_count);
}

static void read_comments(fake_program *p) {
  static const char MARK[] = "// fake: ";
  for (const char *at = p->text; (at = strstr(at, MARK));) {
    at += sizeof MARK - 1;
    char line[320] = "", word[32] = "";
    int used = 0;
    snprintf(line, sizeof line, "%.*s", (int)strcspn(at, "\n"), at);
    sscanf(line, "%31s %n", word, &used);
    char *rest = line + used;
    if (!strcmp(word, "add")) p->kind = FAKE_ADD;
    else if (!strcmp(word, "copy")) p->kind = FAKE_COPY;
    else if (!strcmp(word, "compile-ms")) p->compile_ms = atoi(rest);
    else if (!strcmp(word, "run-ms")) p->run_ms = atoi(rest);
    else if (!strcmp(word, "compile-fail")) sscanf(rest, "%d %255[^\n]", &p->compile_code, p->compile_error);
    else if (!strcmp(word, "run-fail")) sscanf(rest, "%d %255[^\n]", &p->run_code, p->run_error);
    else if (!strcmp(word, "compile-abort")) p->compile_abort = true;
  }
}

static bool read_varint(const uint8_t **at, const uint8_t *end, uint64_t *out_value) {
  *out_value = 0;
  for (int shift = 0; *at < end && shift < 64; shift += 7) {
    uint8_t byte = *(*at)++;
    *out_value |= (uint64_t)(byte & 0x7f) << shift;
    if (!(byte & 0x80)) return true;
  }
  return false;
}

// CompileOptionsProto: compile_portable_executable 4, executable_build_options 3 { num_partitions 5 }.
static bool read_options(fake_program *p, const uint8_t *at, const uint8_t *end, bool top) {
  while (at < end) {
    uint64_t tag, value;
    if (!read_varint(&at, end, &tag) || !read_varint(&at, end, &value)) return false;
    if ((tag & 7) == 0) {
      if (top && tag >> 3 == 4) p->portable = value != 0;
      if (!top && tag >> 3 == 5) p->partitions = (int)value;
    } else if ((tag & 7) == 2) {
      if (value > (uint64_t)(end - at)) return false;
      if (top && tag >> 3 == 3 && !read_options(p, at, at + value, false)) return false;
      at += value;
    } else {
      return false;
    }
  }
  return true;
}

static void list_outputs(fake_program *p) {
  int64_t *next = p->output_dims;
  for (int i = 0; i < p->result_count; ++i) {
    const fake_type *type = &p->results[i];
    p->output_types[i] = type->dtype;
    p->output_ranks[i] = (size_t)type->rank;
    for (int d = 0; d < type->rank; ++d) *next++ = type->dims[d];
  }
}

static bool check_kind(reader *r, const fake_program *p) {
  if (p->kind == FAKE_ADD &&
      (p->argument_count < 2 || p->result_count != 1 || p->results[0].dtype != PJ_F32 ||
       p->arguments[0].size != p->results[0].size || p->arguments[1].size != p->results[0].size))
    return fail(r, "add wants two f32 arguments and a result of one size");
  if (p->kind == FAKE_COPY)
    for (int i = 0; i < p->result_count; ++i)
      if (i >= p->argument_count || p->arguments[i].size != p->results[i].size)
        return fail(r, "copy wants an argument of each result's size");
  return true;
}

fake_program *fake_program_parse(const char *text, size_t size, const uint8_t *options, size_t options_size,
                                 char error[256]) {
  *error = 0;
  fake_program *p = calloc(1, sizeof *p);
  p->refs = 1;
  p->partitions = 1;
  p->text = strndup(text, size);
  p->text_size = size;
  reader r = {p->text, error};
  if (strncmp(p->text, "module", 6)) fail(&r, "a module is expected");
  else if (!read_options(p, options, options + options_size, true)) fail(&r, "the compile options do not parse");
  else if (read_signature(&r, p)) read_comments(p), check_kind(&r, p), list_outputs(p);
  if (!*error) return p;
  fake_program_free(p);
  return NULL;
}

void fake_program_free(fake_program *p) {
  free(p->text);
  free(p);
}

void fake_program_run(const fake_program *p, void *const *arguments, void **results) {
  for (int i = 0; i < p->result_count; ++i) {
    size_t size = p->results[i].size;
    if (p->kind == FAKE_ZEROS) memset(results[i], 0, size);
    else if (p->kind == FAKE_COPY) memcpy(results[i], arguments[i], size);
    else
      for (size_t e = 0; e < size / sizeof(float); ++e)
        ((float *)results[i])[e] = ((const float *)arguments[0])[e] + ((const float *)arguments[1])[e];
  }
}
