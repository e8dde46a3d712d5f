// Vectors as points of a plane: principal components of unit vectors.

const ROUNDS = 300;

function dot(one, two) {
  return one.reduce((sum, value, index) => sum + value * two[index], 0);
}

function scaled(vector, factor) {
  return vector.map((value) => value * factor);
}

/** The largest eigenvalue of a symmetric matrix and its eigenvector, by power iteration from a fixed start. */
function largest(matrix) {
  let vector = matrix.map((_, index) => Math.sin(index + 1));
  let value = 0;
  for (let round = 0; round < ROUNDS; round += 1) {
    const product = matrix.map((row) => dot(row, vector));
    value = Math.sqrt(dot(product, product));
    if (value < 1e-12) return {value: 0, vector: vector.map(() => 0)};
    vector = scaled(product, 1 / value);
  }
  return {value, vector};
}

/** Points {x, y} of vectors, all of length 1 first; their distances are as near as two dimensions allow. */
export function project(vectors) {
  const units = vectors.map((vector) => scaled(vector, 1 / (Math.sqrt(dot(vector, vector)) || 1)));
  const mean = units[0].map((_, column) => units.reduce((sum, unit) => sum + unit[column], 0) / units.length);
  const centred = units.map((unit) => unit.map((value, column) => value - mean[column]));
  let gram = centred.map((one) => centred.map((two) => dot(one, two)));
  const axes = [0, 1].map(() => {
    const {value, vector} = largest(gram);
    gram = gram.map((row, i) => row.map((cell, j) => cell - value * vector[i] * vector[j]));
    return scaled(vector, Math.sqrt(value));
  });
  return vectors.map((_, index) => ({x: axes[0][index], y: axes[1][index]}));
}
